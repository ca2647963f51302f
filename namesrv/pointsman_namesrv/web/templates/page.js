"use strict";
// The page is complete without this: it only loads the same address again, and replaces the parts that changed.
const EVERY_MS = 3000, PATIENCE_MS = 9000;
const byId = (id) => document.getElementById(id);
// The past stays as it is, and one reader at a time asks the history: such a page is not loaded again.
const isStill = new URLSearchParams(location.search).get("at") || byId("main").hasAttribute("data-still");
let since = null, timer = 0;
function replaceChanged(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const now = fresh.getElementById(part.id);
    if (!now || part.isEqualNode(now)) continue;
    // A reader keeps the place: how far tables are scrolled, and the link that has the focus.
    const scrolled = [part, ...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.replaceWith(document.adoptNode(now));
    [now, ...now.querySelectorAll(".scroll")].forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
    const link = focused && [...now.querySelectorAll("a")].find((each) => each.getAttribute("href") === focused);
    if (link) link.focus({ preventScroll: true });
  }
  if (document.title !== fresh.title) document.title = fresh.title;
}
function lose(why) {
  since = since || new Date();
  byId("lost").textContent = "Connection lost since " + since.toLocaleTimeString() + " (" + why + "). What is shown is from before.";
  byId("lost").hidden = false;
  document.body.className = "stale";
}
async function refresh() {
  clearTimeout(timer);
  const ended = new AbortController(), patience = setTimeout(() => ended.abort(), PATIENCE_MS);
  try {
    const selection = document.getSelection();
    if (!document.hidden && !(selection && selection.toString())) {
      const answer = await fetch(location.href, { signal: ended.signal, cache: "no-store", headers: { Accept: "text/html" } });
      const text = await answer.text();
      if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
      replaceChanged(new DOMParser().parseFromString(text, "text/html"));
      since = null; byId("lost").hidden = true; document.body.className = "";
    }
  } catch (error) {
    lose(error.name === "AbortError" ? "no answer in time" : error.message);
  } finally {
    clearTimeout(patience);
    timer = setTimeout(refresh, EVERY_MS);
  }
}
if (!isStill) {
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
  timer = setTimeout(refresh, EVERY_MS);
}
