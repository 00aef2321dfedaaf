// Other tabs of the page in this browser. They share the store; each says what it changed there.
export interface News {
  conversations?: string[]; // changed
  messages?: string[]; // changed
  erased?: string; // a conversation
  asks?: string[]; // who writes these answers?
  writes?: string[]; // this tab does
  left?: string[]; // this tab did, and is gone
}

const channel = new BroadcastChannel('zinc');

export const tell = (news: News) => channel.postMessage(news);

export function listen(take: (news: News) => void): () => void {
  const heard = (event: MessageEvent<News>) => take(event.data);
  channel.addEventListener('message', heard);
  return () => channel.removeEventListener('message', heard);
}

const kPatienceMs = 250;

// Which of these answers are being written by another tab.
export function writtenElsewhere(ids: string[]): Promise<Set<string>> {
  const found = new Set<string>();
  if (ids.length === 0) return Promise.resolve(found);
  return new Promise((resolve) => {
    const finish = () => {
      stop();
      clearTimeout(timer);
      resolve(found);
    };
    const stop = listen(({ writes = [] }) => {
      for (const id of writes) if (ids.includes(id)) found.add(id);
      if (found.size === ids.length) finish();
    });
    const timer = setTimeout(finish, kPatienceMs);
    tell({ asks: ids });
  });
}
