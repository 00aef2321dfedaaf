// Messages between tabs of this browser. Tabs share the store and announce their changes.
export interface TabMessage {
  conversations?: string[]; // changed
  messages?: string[]; // changed
  deleted?: string; // a conversation
  removed?: string[]; // messages
  query?: string[]; // which tab streams these answers?
  streaming?: string[]; // the sending tab streams these answers
  closed?: string[]; // the sending tab streamed these answers and is closing
}

const channel = new BroadcastChannel('zinc');

export const broadcast = (message: TabMessage) => channel.postMessage(message);

export function listen(onMessage: (message: TabMessage) => void): () => void {
  const handler = (event: MessageEvent<TabMessage>) => onMessage(event.data);
  channel.addEventListener('message', handler);
  return () => channel.removeEventListener('message', handler);
}

const kReplyTimeoutMs = 250;

// Which of these answers another tab is streaming.
export function streamedElsewhere(ids: string[]): Promise<Set<string>> {
  const found = new Set<string>();
  if (ids.length === 0) return Promise.resolve(found);
  return new Promise((resolve) => {
    const finish = () => {
      stop();
      clearTimeout(timer);
      resolve(found);
    };
    const stop = listen(({ streaming = [] }) => {
      for (const id of streaming) if (ids.includes(id)) found.add(id);
      if (found.size === ids.length) finish();
    });
    const timer = setTimeout(finish, kReplyTimeoutMs);
    broadcast({ query: ids });
  });
}
