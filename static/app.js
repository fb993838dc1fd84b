// Starts what a page needs. Every page works without this; with it, pages are live and unsent input survives.
import { clearOwner, countOwner } from "./saved.js";
import { startComposer } from "./composer.js";
import { startLive } from "./live.js";

const form = document.querySelector("form[data-saved]");
if (form) startComposer(form);

if (document.querySelector("#live")) startLive();

const signOut = document.querySelector("form[data-sign-out]");
if (signOut) {
  const owner = signOut.dataset.owner;
  countOwner(owner).then((count) => {
    if (!count) return;
    const note = document.querySelector("#unsent");
    note.textContent =
      count === 1
        ? "One request in this browser is not settled. Signing out deletes it."
        : `${count} requests in this browser are not settled. Signing out deletes them.`;
    note.hidden = false;
  }, () => {});
  signOut.addEventListener("submit", (event) => {
    event.preventDefault();
    // A browser without IndexedDB has nothing to clear.
    clearOwner(owner)
      .catch(() => {})
      .finally(() => signOut.submit());
  });
}
