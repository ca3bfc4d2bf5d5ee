// Before the page is drawn: light or dark, as somebody chose; else as the system says.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
