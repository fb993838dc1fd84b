// The composer and the edit form: attach, paste, drop; write down, then send; offer again what is not settled.
import { put, remove, tab, unsettled, verdict } from "./saved.js";

const HIDDEN = ["requestId", "expectedConversation", "expectedSelectionRevision", "expectedRevision"];

function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1048576) return `${Math.ceil(bytes / 1024)} KiB`;
  return `${(bytes / 1048576).toFixed(1)} MiB`;
}

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

export function startComposer(form) {
  const text = form.querySelector("#text");
  const picker = form.querySelector("#files");
  const chosen = form.querySelector("#chosen");
  const send = form.querySelector("#send");
  const card = form.querySelector("#saved");
  const notice = form.querySelector("#composer-notice");
  const { owner, home } = document.body.dataset;
  let files = [];
  let waiting = null; // the unsettled request of this tab
  let sending = false;
  let stale = false; // the hidden identity was used and has to be renewed first

  const say = (message, ...links) => {
    notice.replaceChildren();
    if (message) notice.append(element("p", message), ...links);
    notice.hidden = !message;
  };

  const redraw = () => {
    send.disabled = sending || Boolean(waiting);
    chosen.replaceChildren(
      ...files.map((file, index) => {
        const row = element("li", "", { class: "file" });
        const drop = element("button", "×", { type: "button", "aria-label": `Remove ${file.name}` });
        drop.addEventListener("click", () => {
          files.splice(index, 1);
          redraw();
          picker.focus();
        });
        row.append(element("span", file.name || "unnamed"), element("span", size(file.size), { class: "soft" }), drop);
        return row;
      }),
    );
  };

  const add = (more) => {
    const next = [...files, ...more];
    const bytes = next.reduce((sum, file) => sum + file.size, 0);
    if (next.length > Number(form.dataset.maxFiles)) {
      say(`One message carries at most ${form.dataset.maxFiles} files.`);
    } else if (bytes > Number(form.dataset.maxBytes)) {
      say(`The files of one message may have ${size(Number(form.dataset.maxBytes))} together.`);
    } else {
      say("");
      files = next;
      redraw();
    }
  };

  picker.addEventListener("change", () => {
    add([...picker.files]);
    picker.value = "";
  });
  text.addEventListener("paste", (event) => {
    const pasted = [...event.clipboardData.files];
    if (!pasted.length) return;
    event.preventDefault();
    const words = event.clipboardData.getData("text/plain");
    if (words) text.setRangeText(words, text.selectionStart, text.selectionEnd, "end");
    add(pasted);
  });
  form.addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    form.classList.add("dropping");
  });
  form.addEventListener("dragleave", () => form.classList.remove("dropping"));
  form.addEventListener("drop", (event) => {
    form.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    add([...event.dataTransfer.files]);
  });
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });

  /** Takes a new identity from a fresh copy of this page. */
  const renew = async () => {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok || answer.redirected) throw new Error("signed out");
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const today = page.querySelector("form[data-saved]");
    for (const name of [...HIDDEN, "csrf"]) {
      const now = today?.elements[name];
      if (now && form.elements[name]) form.elements[name].value = now.value;
    }
    stale = false;
  };

  const write = async () => {
    const fields = [...new FormData(form)].filter(([name, value]) => typeof value === "string" && name !== "csrf");
    return {
      key: form.elements.requestId.value,
      owner,
      home,
      tab: await tab(),
      url: form.getAttribute("action"),
      page: location.pathname,
      at: Date.now(),
      fields,
      files: files.map((file) => ({ name: file.name, type: file.type, bytes: file })),
    };
  };

  const body = (entry) => {
    const data = new FormData();
    data.append("csrf", form.elements.csrf.value);
    for (const [name, value] of entry.fields) data.append(name, value);
    for (const file of entry.files) data.append("files", new File([file.bytes], file.name, { type: file.type }));
    return data;
  };

  const deliver = async (entry) => {
    let answer;
    let document_ = null;
    try {
      answer = await fetch(entry.url, {
        method: "POST",
        body: body(entry),
        headers: { Accept: "application/json" },
        redirect: "error",
      });
      document_ = await answer.json();
    } catch {
      // Sent or not, arrived or not: nobody here can know.
      if (!answer || answer.ok) return ["unknown", "The connection was lost. The message may have arrived or not."];
    }
    const outcome = verdict(answer.status, document_?.code);
    const reasons = (document_?.fields ?? []).map((field) => field.message);
    const detail = [document_?.detail ?? `The server answered ${answer.status}.`, ...reasons].join(" ");
    return [outcome, detail, document_, answer.status];
  };

  const giveBack = (entry) => {
    const words = entry.fields.find(([name]) => name === "text")?.[1] ?? "";
    text.value = text.value && text.value !== words ? `${words}\n${text.value}` : words;
    files = [...entry.files.map((file) => new File([file.bytes], file.name, { type: file.type })), ...files];
  };

  const showConflict = (current) => {
    if (!current || !("text" in current) || !form.elements.expectedRevision) return;
    const beside = element("div", "", { class: "beside" });
    const now = element("section");
    now.append(element("h2", "What stands there now"), element("pre", current.text ?? "", { class: "text" }));
    beside.append(now);
    notice.append(beside);
  };

  const settle = async (entry, [outcome, detail, document_, status]) => {
    sending = false;
    if (outcome === "unknown") {
      waiting = entry;
      offer(status === 401 ? "You are signed out. Sign in in another tab, then retry." : detail);
      return;
    }
    await remove(entry.key);
    waiting = null;
    card.hidden = true;
    card.replaceChildren();
    stale = true;
    if (outcome === "refused") {
      giveBack(entry);
      say(detail);
      showConflict(document_?.current);
    } else {
      say("");
      document.querySelector("#announce")?.replaceChildren("Queued.");
      if (form.dataset.after) location.assign(form.dataset.after);
      else globalThis.htmx?.trigger("#queue", "refresh");
    }
    redraw();
    text.focus();
    await renew().catch(() => {});
  };

  const offer = (why) => {
    const words = waiting.fields.find(([name]) => name === "text")?.[1] ?? "";
    const retry = element("button", "Retry saved request", { type: "button", class: "primary" });
    retry.addEventListener("click", async () => {
      retry.disabled = true;
      sending = true;
      // A session that began meanwhile has another form token.
      await renew().catch(() => {});
      await settle(waiting, await deliver(waiting));
    });
    const parts = [
      element("h3", "Outcome unknown: this request is kept in this browser"),
      element("p", why),
      element("p", words, { class: "quoted" }),
    ];
    if (waiting.files.length) {
      const list = element("ul", "", { class: "files" });
      list.append(...waiting.files.map((file) => element("li", `${file.name || "unnamed"}, ${size(file.bytes.size)}`, { class: "file" })));
      parts.push(list);
    }
    const row = element("div", "", { class: "row" });
    row.append(retry);
    if (why.startsWith("You are signed out")) row.append(element("a", "Sign in", { class: "button", href: "/sign-in", target: "_blank", rel: "noopener" }));
    parts.push(element("p", "Retrying sends exactly the same request, so it is taken once. Until it is settled, this tab sends nothing new.", { class: "hint" }), row);
    card.replaceChildren(...parts);
    card.hidden = false;
    redraw();
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (sending || waiting) return;
    if (!text.value.trim() && !files.length && !form.elements.editsFiles) {
      say("Write a message, or attach a file.");
      text.focus();
      return;
    }
    sending = true;
    redraw();
    let entry;
    try {
      if (stale) await renew();
      entry = await write();
      await put(entry);
    } catch (error) {
      sending = false;
      say(`Nothing was sent. This browser can not keep the message safe until it is stored (${error?.message ?? "storage failed"}). Allow site data for this address, leave private browsing, or free some space; then send again.`);
      redraw();
      return;
    }
    if (!form.dataset.after) text.value = "";
    files = [];
    say("");
    redraw();
    await settle(entry, await deliver(entry));
  });

  unsettled(owner, home).then(
    (entry) => {
      if (!entry) return;
      waiting = entry;
      offer(entry.page === location.pathname ? "The page was closed before the server's answer came." : "It was written on another page of this home.");
    },
    (error) => say(`This browser can not keep messages safe (${error?.message ?? "no storage"}), so nothing is sent from here. Allow site data for this address or leave private browsing.`),
  );
}
