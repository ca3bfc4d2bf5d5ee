// Keys, but not while somebody writes into a field.
const PAGES = { o: "", q: "queue", t: "topic", c: "connection", x: "transaction", h: "half", j: "journal", s: "send" };
const GO_MS = 1200;
let going = 0;

export function takeKeys(more) {
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = event.target.closest("input, textarea, select");
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (act(event.key, more)) event.preventDefault();
  });
}

function act(key, more) {
  if (Date.now() < going && key in PAGES) {
    going = 0;
    const broker = location.pathname.split("/")[1];
    location.href = `/${broker}/${PAGES[key]}`;
    return true;
  }
  going = 0;
  switch (key) {
    case "g": going = Date.now() + GO_MS; return true;
    case "/": return focus("[data-filter], [data-slash]");
    case "j": return choose(1);
    case "k": return choose(-1);
    case "Enter": return press("tr.chosen a");
    case "[": return press("a[rel=prev]");
    case "]": return press("a[rel=next]");
    default: return key in more && (more[key](), true);
  }
}

function focus(what) {
  const field = document.querySelector(what);
  field?.focus();
  field?.select();
  return Boolean(field);
}

function press(what) {
  if (document.activeElement?.closest("a, button")) return false; // that is what Enter means then
  const link = document.querySelector(what);
  link?.click();
  return Boolean(link);
}

function choose(step) {
  const rows = [...document.querySelectorAll("#live table[data-rows] tbody tr, #live table tbody tr")];
  if (!rows.length) return false;
  const before = rows.findIndex(row => row.classList.contains("chosen"));
  const at = Math.min(Math.max(before + step, 0), rows.length - 1);
  rows[before]?.classList.remove("chosen");
  rows[at].classList.add("chosen");
  rows[at].scrollIntoView({ block: "nearest" });
  return true;
}
