// The part of a page that changes: fetched again after as long as the server says, while somebody can see it.
const FAILED_PAUSE_MS = 5000;
let timer = 0, asked = 0;

export function keepLive() {
  document.addEventListener("visibilitychange", () => { if (!document.hidden) again(0); });
  again(pause());
}

export async function look() {
  clearTimeout(timer);
  const mine = ++asked;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" } });
    if (answer.status === 401) return location.reload();
    const text = await answer.text();
    if (mine !== asked) return; // another one was asked for meanwhile
    document.body.classList.remove("broker-gone");
    if (answer.ok || text.includes('id="live"')) replace(text);
    again(answer.ok ? pause() : FAILED_PAUSE_MS);
  } catch {
    document.body.classList.add("broker-gone");
    again(FAILED_PAUSE_MS);
  }
}

function pause() {
  return Number(document.getElementById("live")?.dataset.every ?? 0);
}

function again(after) {
  clearTimeout(timer);
  if (pause()) timer = setTimeout(() => (document.hidden ? undefined : look()), after);
}

function replace(text) {
  const before = document.getElementById("live");
  const now = new DOMParser().parseFromString(text, "text/html").getElementById("live");
  if (!before || !now || getSelection()?.toString()) return; // somebody is marking a text: later
  const scrolled = [...before.querySelectorAll(".wide")].map(each => [each.scrollLeft, each.scrollTop]);
  const focused = before.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  const chosen = before.querySelector("tr.chosen a")?.getAttribute("href");
  before.replaceWith(now);
  [...now.querySelectorAll(".wide")].forEach((each, at) => {
    if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
  });
  for (const link of now.querySelectorAll("a")) {
    if (focused && link.getAttribute("href") === focused) { link.focus({ preventScroll: true }); break; }
  }
  for (const link of now.querySelectorAll("td a")) {
    if (chosen && link.getAttribute("href") === chosen) { link.closest("tr").classList.add("chosen"); break; }
  }
}
