// What a page does by itself: looks again, filters while somebody types, and takes keys.
import { keepLive, look } from "./live.js";
import { takeKeys } from "./keys.js";

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

function filterWhileTyping(field) {
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const here = new URL(location.href);
      if (field.value) here.searchParams.set(field.name, field.value);
      else here.searchParams.delete(field.name);
      here.searchParams.delete("page");
      history.replaceState(null, "", here);
      look();
    }, 200);
  });
}

const keys = document.getElementById("keys");
document.querySelector("[data-theme-button]")?.addEventListener("click", toggleTheme);
document.querySelector("[data-keys]")?.addEventListener("click", () => keys.showModal());
document.querySelector("[data-menu]")?.addEventListener("click", event => {
  const open = document.body.classList.toggle("menu-open");
  event.currentTarget.setAttribute("aria-expanded", String(open));
});
document.querySelectorAll("[data-filter]").forEach(filterWhileTyping);
document.querySelectorAll("[data-back]").forEach(link => link.addEventListener("click", event => {
  // Where somebody came from a page of the console, back means that page, as it was.
  if (document.referrer.startsWith(location.origin) && history.length > 1) {
    event.preventDefault();
    history.back();
  }
}));
takeKeys({ t: toggleTheme, "?": () => keys?.showModal() });
keepLive();
