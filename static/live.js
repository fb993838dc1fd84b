// The live parts of an Agent's page. htmx renews the queue and the state; here are words, cards and the clock.

const NEAR = 160;

export function startLive() {
  const chat = document.querySelector("#chat");
  const live = document.querySelector("#live");
  const scroll = document.querySelector("#scroll");
  const messages = document.querySelector("#messages");
  const cards = document.querySelector("#live-cards");
  const answer = document.querySelector("#live-answer");
  const streamed = document.querySelector("#streamed");
  const announce = document.querySelector("#announce");
  const base = chat.dataset.base;

  const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR;
  const toEnd = () => scroll.scrollTo({ top: scroll.scrollHeight });
  const keepEnd = (work) => {
    const follow = atEnd();
    work();
    if (follow) toEnd();
  };

  const data = (event) => {
    try {
      return JSON.parse(event.detail.data);
    } catch {
      return {};
    }
  };

  // A card that was delivered here goes where its call stands, also when the message about it came without its output.
  const settleCards = (message) => {
    for (const place of message.querySelectorAll(".tool[data-call]")) {
      const card = [...cards.querySelectorAll("article")].find((other) => other.dataset.call === place.dataset.call);
      if (card) place.replaceWith(card);
    }
    for (const card of message.querySelectorAll("article[data-receipt]")) {
      const twin = [...cards.querySelectorAll("article")].find((other) => other.dataset.receipt === card.dataset.receipt);
      twin?.closest("li")?.remove();
    }
    for (const row of [...cards.children]) if (!row.querySelector("article")) row.remove();
  };

  let asking = null;
  let again = false;
  const more = () => {
    if (asking) {
      again = true;
      return;
    }
    asking = fetch(`${base}/messages?after=${messages.dataset.last}`, { headers: { Accept: "text/html" } })
      .then(async (answered) => {
        if (!answered.ok || answered.redirected) return;
        const part = document.createElement("template");
        part.innerHTML = await answered.text();
        const rows = [...part.content.children].filter((row) => row.matches("li[data-seq]") && !document.getElementById(row.id));
        if (!rows.length) return;
        keepEnd(() => {
          messages.append(...rows);
          rows.forEach(settleCards);
          messages.dataset.last = rows.at(-1).dataset.seq;
          document.querySelector("#no-messages")?.remove();
          if (rows.some((row) => row.classList.contains("assistant"))) {
            streamed.textContent = "";
            answer.hidden = true;
          }
        });
        announce.textContent = `${rows.at(-1).querySelector(".from span").textContent} wrote.`;
      })
      .catch(() => {})
      .finally(() => {
        asking = null;
        if (again) {
          again = false;
          more();
        }
      });
  };

  live.addEventListener("message", more);
  live.addEventListener("reload", more);
  live.addEventListener("turn", (event) => {
    if (data(event).state !== "running") answer.hidden = true;
    more();
  });
  live.addEventListener("delta", (event) => {
    const { text } = data(event);
    if (!text) return;
    keepEnd(() => {
      streamed.append(text);
      answer.hidden = false;
    });
  });
  live.addEventListener("command", (event) => {
    const { receiptId, callId, html } = data(event);
    if (!receiptId || !html) return;
    const part = document.createElement("template");
    part.innerHTML = html;
    const card = part.content.querySelector("article");
    card.dataset.call = callId;
    const shown = document.getElementById(`card-${receiptId}`);
    const place = [...messages.querySelectorAll(".tool[data-call]")].find((tool) => tool.dataset.call === callId);
    keepEnd(() => {
      if (shown) {
        card.querySelector("details")?.toggleAttribute("open", shown.querySelector("details")?.open ?? false);
        shown.replaceWith(card);
        return;
      }
      if (place) {
        place.replaceWith(card);
        return;
      }
      const row = document.createElement("li");
      row.className = "message assistant";
      row.append(card);
      cards.append(row);
    });
    if (!card.classList.contains("busy")) announce.textContent = card.querySelector("header").textContent;
  });

  // The button says what it will do.
  const send = document.querySelector("#composer #send");
  const label = () => {
    if (send) send.textContent = document.querySelector("#state")?.dataset.working === "true" ? "Queue follow-up" : "Send";
  };
  new MutationObserver(label).observe(chat, { subtree: true, attributes: true, attributeFilter: ["data-working"] });

  const span = (seconds) => {
    if (seconds < 60) return `${seconds} s`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
    return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  };
  setInterval(() => {
    for (const clock of document.querySelectorAll("time.elapsed")) {
      const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(clock.dateTime)) / 1000));
      clock.textContent = span(seconds);
    }
  }, 1000);

  toEnd();
}
