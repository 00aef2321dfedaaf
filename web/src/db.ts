// The browser's own store. Every version of the schema is a step that brings the one before to it; steps are never
// changed once a release has had them.
import type { Conversation, Draft, Message, TokenChoice } from './types';

const kName = 'zinc';
type Step = (db: IDBDatabase, change: IDBTransaction) => void;

function eachRecord<T>(store: IDBObjectStore, visit: (record: T, cursor: IDBCursorWithValue) => void): void {
  store.openCursor().onsuccess = (event) => {
    const cursor = (event.target as IDBRequest<IDBCursorWithValue | null>).result;
    if (!cursor) return;
    visit(cursor.value as T, cursor);
    cursor.continue();
  };
}

const kSteps: Step[] = [
  // 1: conversations with their messages inside.
  (db) => {
    db.createObjectStore('conversations', { keyPath: 'id' });
  },
  // 2: messages on their own, so that a word more in one does not write them all again.
  (db, change) => {
    const messages = db.createObjectStore('messages', { keyPath: 'id' });
    messages.createIndex('conversation', 'conversation');
    eachRecord<Conversation & { messages?: Message[] }>(change.objectStore('conversations'), (record, cursor) => {
      const { messages: inside = [], ...rest } = record;
      for (const message of inside) messages.put({ ...message, conversation: rest.id });
      cursor.update({ ...rest, settings: rest.settings ?? {}, head: rest.head ?? inside.at(-1)?.id ?? null });
    });
  },
  // 3: tokens with their probabilities on their own, since they are many times larger than the text; drafts here, since
  // an attachment may be larger than what the browser keeps elsewhere.
  (db, change) => {
    const tokens = db.createObjectStore('tokens', { keyPath: 'id' });
    tokens.createIndex('conversation', 'conversation');
    const drafts = db.createObjectStore('drafts', { keyPath: 'id' });
    eachRecord<Message>(change.objectStore('messages'), (record, cursor) => {
      if (!record.tokens) return;
      const { tokens: list, ...rest } = record;
      tokens.put({ id: record.id, conversation: record.conversation, list });
      cursor.update({ ...rest, hasTokens: true });
    });
    eachRecord<Conversation & { draft?: Draft }>(change.objectStore('conversations'), (record, cursor) => {
      if (!record.draft) return;
      const { draft, ...rest } = record;
      drafts.put({ id: record.id, ...draft });
      cursor.update(rest);
    });
  },
];

let opened: Promise<IDBDatabase> | undefined;

// A connection that failed or was closed is not kept: the next that asks opens another.
export function database(): Promise<IDBDatabase> {
  const forget = () => (opened = undefined);
  opened ??= open(forget).catch((error: unknown) => {
    forget();
    throw error;
  });
  return opened;
}

function open(onClose: () => void): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(kName, kSteps.length);
    request.onupgradeneeded = (event) => {
      for (const step of kSteps.slice(event.oldVersion)) step(request.result, request.transaction!);
    };
    request.onsuccess = () => {
      request.result.onclose = onClose;
      request.result.onversionchange = () => {
        request.result.close();
        onClose();
      };
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error('another tab holds an older version of the page open; close it'));
  });
}

function done(change: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    change.oncomplete = () => resolve();
    change.onerror = change.onabort = () => reject(change.error);
  });
}

async function read<T>(store: string, ask: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const db = await database();
  const request = ask(db.transaction(store).objectStore(store));
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export const allConversations = () => read<Conversation[]>('conversations', (store) => store.getAll());
export const conversationOf = (id: string) => read<Conversation | undefined>('conversations', (store) => store.get(id));
export const messagesOf = (conversation: string) =>
  read<Message[]>('messages', (store) => store.index('conversation').getAll(conversation));
export const messageOf = (id: string) => read<Message | undefined>('messages', (store) => store.get(id));

export async function tokensOf(id: string): Promise<TokenChoice[]> {
  return (await read<{ list: TokenChoice[] } | undefined>('tokens', (store) => store.get(id)))?.list ?? [];
}

export async function save(conversations: Conversation[], messages: Message[]): Promise<void> {
  const db = await database();
  const change = db.transaction(['conversations', 'messages', 'tokens'], 'readwrite');
  for (const conversation of conversations) change.objectStore('conversations').put(conversation);
  for (const { tokens, ...message } of messages) {
    // Thousands of them: written once, when the answer has ended.
    const keepsTokens = tokens && tokens.length > 0 && !message.writing;
    if (keepsTokens) change.objectStore('tokens').put({ id: message.id, conversation: message.conversation, list: tokens });
    change.objectStore('messages').put({ ...message, hasTokens: keepsTokens || message.hasTokens });
  }
  return done(change);
}

// Changes a message as it is in the store at that moment, where `change` says that it did. What is given back is stored.
export async function amend(id: string, change: (record: Message) => boolean): Promise<Message | undefined> {
  const db = await database();
  const writing = db.transaction('messages', 'readwrite');
  const records = writing.objectStore('messages');
  let found: Message | undefined;
  records.get(id).onsuccess = (event) => {
    found = (event.target as IDBRequest<Message | undefined>).result;
    if (found && change(found)) records.put(found);
  };
  await done(writing);
  return found;
}

// Messages with their tokens, for taking them elsewhere.
export async function wholeMessagesOf(conversation: string): Promise<Message[]> {
  const list = await messagesOf(conversation);
  for (const message of list) if (message.hasTokens) message.tokens = await tokensOf(message.id);
  return list;
}

export async function erase(conversation: string): Promise<void> {
  const db = await database();
  const change = db.transaction(['conversations', 'messages', 'tokens', 'drafts'], 'readwrite');
  change.objectStore('conversations').delete(conversation);
  change.objectStore('drafts').delete(conversation);
  for (const name of ['messages', 'tokens']) {
    const store = change.objectStore(name);
    store.index('conversation').openKeyCursor(conversation).onsuccess = (event) => {
      const cursor = (event.target as IDBRequest<IDBCursor | null>).result;
      if (!cursor) return;
      store.delete(cursor.primaryKey);
      change.objectStore('drafts').delete(IDBKeyRange.bound(`${cursor.primaryKey}:`, `${cursor.primaryKey}:\uffff`));
      cursor.continue();
    };
  }
  return done(change);
}

export const draftOf = (id: string) => read<Draft | undefined>('drafts', (store) => store.get(id));
export const allDrafts = () => read<(Draft & { id: string })[]>('drafts', (store) => store.getAll());

export async function saveDraft(id: string, draft: Draft): Promise<void> {
  const db = await database();
  const change = db.transaction('drafts', 'readwrite');
  if (draft.text || draft.attachments.length) change.objectStore('drafts').put({ id, ...draft });
  else change.objectStore('drafts').delete(id);
  return done(change);
}
