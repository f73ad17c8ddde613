// The web terminal: xterm.js in the page, and a WebSocket to the agent's reconnecting terminal.
"use strict";

(() => {
  const ATTEMPTS = 6;
  const PIECE = 32 * 1024;
  const page = document.getElementById("terminal");
  const notice = document.getElementById("notice");
  const question = document.getElementById("question");
  const terminal = new Terminal({ cursorBlink: true, scrollback: 10000, fontFamily: "ui-monospace, monospace" });
  const fit = new FitAddon.FitAddon();
  const encoder = new TextEncoder();
  let socket = null;
  let attempt = 0;
  let ended = false;
  let command = page.dataset.command;

  // crypto.randomUUID is missing on pages without TLS.
  const newId = () => {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
  };

  // The id stays in the address, so that a reload finds the same terminal.
  const idInAddress = () => new URLSearchParams(location.search).get("reconnect");
  const putIntoAddress = (id) => {
    const address = new URL(location.href);
    address.searchParams.set("reconnect", id);
    history.replaceState(null, "", address);
    return id;
  };
  let id = /^[0-9a-f-]{36}$/i.test(idInAddress() || "") ? idInAddress() : putIntoAddress(newId());

  const tell = (text) => {
    notice.textContent = text;
    notice.hidden = text === "";
  };
  const send = (message) => {
    if (socket && socket.readyState === WebSocket.OPEN) {
      socket.send(encoder.encode(JSON.stringify(message)));
    }
  };
  const sendSize = () => send({ height: terminal.rows, width: terminal.cols });

  const connect = () => {
    ended = false;
    const query = new URLSearchParams({
      reconnect: id,
      height: String(terminal.rows),
      width: String(terminal.cols),
    });
    if (command !== "") {
      query.set("command", command);
    }
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const path = `/api/v2/workspaceagents/${page.dataset.agent}/pty`;
    const opened = new WebSocket(`${scheme}//${location.host}${path}?${query}`);
    opened.binaryType = "arraybuffer";
    socket = opened;
    opened.onopen = () => {
      attempt = 0;
      // The agent repeats the last output.
      terminal.reset();
      tell("");
      sendSize();
      terminal.focus();
      page.dataset.state = "open";
    };
    opened.onmessage = (event) => {
      terminal.write(typeof event.data === "string" ? event.data : new Uint8Array(event.data));
    };
    opened.onclose = (event) => {
      page.dataset.state = "closed";
      if (event.code === 1000) {
        ended = true;
        tell("The program has ended. Press Enter for a new terminal.");
        return;
      }
      if (attempt >= ATTEMPTS) {
        ended = true;
        tell(`The connection was lost. ${event.reason} Press Enter to try again.`);
        return;
      }
      const pause = 1000 * 2 ** attempt;
      attempt += 1;
      tell(`The connection was lost. ${event.reason} Trying again in ${pause / 1000} s.`);
      setTimeout(connect, pause);
    };
  };

  const start = () => {
    question.hidden = true;
    page.hidden = false;
    terminal.loadAddon(fit);
    terminal.open(page);
    fit.fit();
    terminal.onData((data) => {
      if (ended) {
        if (data === "\r") {
          attempt = 0;
          id = putIntoAddress(newId());
          connect();
        }
        return;
      }
      for (let at = 0; at < data.length; at += PIECE) {
        send({ data: data.slice(at, at + PIECE) });
      }
    });
    terminal.onResize(sendSize);
    new ResizeObserver(() => fit.fit()).observe(page);
    connect();
  };

  // Whoever made the address chose the command: the person at the browser decides whether it runs.
  if (question.dataset.ask === "true") {
    document.getElementById("run").onclick = start;
    document.getElementById("shell").onclick = () => {
      command = "";
      start();
    };
    question.hidden = false;
  } else {
    start();
  }
})();
