// Requests that were written down before they were sent, in IndexedDB.
//
// - One entry is one request with everything it carries, files too. It belongs to one operator, one home and one tab.
// - An entry of a tab that is gone is offered in the next one; an entry of a living tab is nobody else's business.
// - Nothing else is ever stored, and nothing that the server said.

const DATABASE = "bazilion";
const STORE = "requests";
const TAB = "bazilion-tab";

function open() {
  return new Promise((resolve, reject) => {
    if (!globalThis.indexedDB) {
      reject(new Error("this browser offers no IndexedDB here"));
      return;
    }
    const asked = indexedDB.open(DATABASE, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore(STORE, { keyPath: "key" });
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
    asked.onblocked = () => reject(new Error("another tab holds an old version open"));
  });
}

/** Runs one transaction; resolves when it is durable, not before. */
async function within(mode, work) {
  const database = await open();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = database.transaction(STORE, mode, { durability: "strict" });
      const request = work(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request?.result);
      transaction.onabort = () => reject(transaction.error ?? new Error("the browser gave up"));
      transaction.onerror = () => reject(transaction.error);
    });
  } finally {
    database.close();
  }
}

export const put = (entry) => within("readwrite", (store) => store.put(entry));
export const remove = (key) => within("readwrite", (store) => store.delete(key));
const all = () => within("readonly", (store) => store.getAll());

function fresh() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether a lock of this name could be taken; it is then held as long as the tab lives. */
function claim(name) {
  return new Promise((resolve) => {
    const asked = navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock ? new Promise(() => {}) : undefined;
    });
    asked.catch(() => resolve(true));
  });
}

async function identify() {
  // A duplicated tab brings its twin's name along; the lock tells them apart.
  const known = sessionStorage.getItem(TAB);
  if (known && (!navigator.locks || (await claim(`${TAB}-${known}`)))) return known;
  const id = fresh();
  sessionStorage.setItem(TAB, id);
  if (navigator.locks) await claim(`${TAB}-${id}`);
  return id;
}

let identity;
/** This tab's name. */
export const tab = () => (identity ??= identify());

async function livingTabs() {
  if (!navigator.locks) return null;
  const { held } = await navigator.locks.query();
  return new Set(held.map((lock) => lock.name));
}

/** The request that this tab has to settle before it sends another, or nothing. */
export async function unsettled(owner, home) {
  const [mine, entries, living] = await Promise.all([tab(), all(), livingTabs()]);
  const ours = entries.filter((entry) => entry.owner === owner && entry.home === home);
  ours.sort((a, b) => a.at - b.at);
  const own = ours.find((entry) => entry.tab === mine);
  if (own || !living) return own;
  const left = ours.find((entry) => !living.has(`${TAB}-${entry.tab}`));
  if (!left) return undefined;
  const adopted = { ...left, tab: mine };
  await put(adopted);
  return adopted;
}

export async function countOwner(owner) {
  return (await all()).filter((entry) => entry.owner === owner).length;
}

export async function clearOwner(owner) {
  const keys = (await all()).filter((entry) => entry.owner === owner).map((entry) => entry.key);
  await within("readwrite", (store) => {
    for (const key of keys) store.delete(key);
  });
}

// Statuses that say: stored nothing, and the same request never will be.
const FINAL = new Set([400, 404, 409, 410, 413, 415, 422]);

/** What an answer means for a saved request: `stored`, `refused` or `unknown`. */
export function verdict(status, code) {
  if (status >= 200 && status < 300) return "stored";
  if (FINAL.has(status)) return "refused";
  if (status === 403 && code === "communication_denied") return "refused";
  if (status === 429 && code === "queue_capacity") return "refused";
  return "unknown";
}
