// Before anything is drawn, and so no module: the theme the user has chosen, lest the page flash in the other one.
{
  const chosen = localStorage.getItem("midstream.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
