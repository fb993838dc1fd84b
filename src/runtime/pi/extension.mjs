// The one extension that Pi runs for Bazilion. It holds no key and decides nothing: every tool call goes to the turn
// host over the turn's socket, and so does every model request.
//
// After an abort a call keeps waiting for the host's answer: cancelled is not yet cleaned up.

import { readFileSync, unlinkSync } from "node:fs";
import { request } from "node:http";
import { connect, createServer } from "node:net";

const turn = JSON.parse(readFileSync(process.env.BAZILION_TURN, "utf8"));
const token = readFileSync(turn.tokenFile, "utf8");
unlinkSync(turn.tokenFile);

function ask(method, path, body) {
  return new Promise((resolve, reject) => {
    const payload = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const headers = { authorization: `Bearer ${token}` };
    if (payload) {
      headers["content-type"] = "application/json";
      headers["content-length"] = payload.length;
    }
    const call = request({ socketPath: turn.socket, method, path, headers, agent: false }, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("error", reject);
      answer.on("end", () => {
        const text = Buffer.concat(parts).toString("utf8");
        if (answer.statusCode !== 200) return reject(new Error(`The turn host refused the call: ${text}`));
        try {
          resolve(JSON.parse(text));
        } catch (error) {
          reject(error);
        }
      });
    });
    call.on("error", reject);
    call.end(payload);
  });
}

let calls = 0;

async function execute(tool, toolCallId, args, signal) {
  const call = ++calls;
  const cancel = () => ask("POST", "/cancel", { call }).catch(() => {});
  const answer = ask("POST", "/tool", { call, tool, toolCallId, arguments: args ?? {} });
  if (signal?.aborted) cancel();
  else signal?.addEventListener("abort", cancel, { once: true });
  try {
    return await answer;
  } finally {
    signal?.removeEventListener("abort", cancel);
  }
}

// Model clients need a TCP address. This one lives inside this process and ends at the turn's socket.
async function relay() {
  const server = createServer((inbound) => {
    const outbound = connect(turn.socket);
    const close = () => {
      inbound.destroy();
      outbound.destroy();
    };
    inbound.on("error", close).on("close", close);
    outbound.on("error", close).on("close", close);
    inbound.pipe(outbound).pipe(inbound);
  });
  await new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", resolve);
  });
  server.unref();
  return server.address().port;
}

export default async function bazilion(pi) {
  const port = await relay();
  pi.registerProvider(turn.provider, {
    name: "Bazilion",
    baseUrl: `http://127.0.0.1:${port}${turn.modelPath}`,
    apiKey: token,
    api: turn.api,
    models: [turn.model],
  });

  const offered = new Set();
  for (const tool of turn.tools) {
    offered.add(tool.name);
    pi.registerTool({
      name: tool.name,
      label: tool.name,
      description: tool.description,
      parameters: tool.parameters,
      executionMode: tool.executionMode,
      execute: (toolCallId, args, signal) => execute(tool.name, toolCallId, args, signal),
    });
  }

  pi.on("tool_call", (event) => {
    if (!offered.has(event.toolName)) return { block: true, reason: `There is no tool ${event.toolName} here.` };
  });

  pi.on("before_agent_start", async (event) => {
    event.systemPromptOptions.cwd = turn.cwdLabel;
    const { context } = await ask("GET", "/context");
    if (context) return { message: { customType: "bazilion-context", content: context, display: false } };
  });
}
