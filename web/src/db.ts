// IndexedDB storage. Every schema version is a migration from the previous one; released migrations never change.
import type { Conversation, Draft, Message, TokenChoice } from './types';

const kName = 'zinc';
type Migration = (db: IDBDatabase, transaction: IDBTransaction) => Promise<void>;

// Resolves after the last record: a migration may read what the previous one wrote.
function eachRecord<T>(store: IDBObjectStore, visit: (record: T, cursor: IDBCursorWithValue) => void): Promise<void> {
  return new Promise((resolve) => {
    store.openCursor().onsuccess = (event) => {
      const cursor = (event.target as IDBRequest<IDBCursorWithValue | null>).result;
      if (!cursor) return resolve();
      visit(cursor.value as T, cursor);
      cursor.continue();
    };
  });
}

const kMigrations: Migration[] = [
  // 1: conversations with their messages embedded.
  async (db) => {
    db.createObjectStore('conversations', { keyPath: 'id' });
  },
  // 2: messages in their own store, so that changing one message does not rewrite all of them.
  async (db, transaction) => {
    const messages = db.createObjectStore('messages', { keyPath: 'id' });
    messages.createIndex('conversation', 'conversation');
    await eachRecord<Conversation & { messages?: Message[] }>(transaction.objectStore('conversations'), (record, cursor) => {
      const { messages: embedded = [], ...rest } = record;
      for (const message of embedded) messages.put({ ...message, conversation: rest.id });
      cursor.update({ ...rest, settings: rest.settings ?? {}, head: rest.head ?? embedded.at(-1)?.id ?? null });
    });
  },
  // 3: token probabilities in their own store, since they are many times larger than the text; drafts here, since an
  // attachment may exceed the quota of localStorage.
  async (db, transaction) => {
    const tokens = db.createObjectStore('tokens', { keyPath: 'id' });
    tokens.createIndex('conversation', 'conversation');
    const drafts = db.createObjectStore('drafts', { keyPath: 'id' });
    await eachRecord<Message>(transaction.objectStore('messages'), (record, cursor) => {
      if (!record.tokens) return;
      const { tokens: list, ...rest } = record;
      tokens.put({ id: record.id, conversation: record.conversation, list });
      cursor.update({ ...rest, hasTokens: true });
    });
    await eachRecord<Conversation & { draft?: Draft }>(transaction.objectStore('conversations'), (record, cursor) => {
      if (!record.draft) return;
      const { draft, ...rest } = record;
      drafts.put({ id: record.id, ...draft });
      cursor.update(rest);
    });
  },
  // 4: the tokens of an answer as JSON text. A record of thousands of objects blocks the page for 40 ms: the browser copies it twice
  // when it is stored.
  async (_, transaction) => {
    await eachRecord<{ list: TokenChoice[] }>(transaction.objectStore('tokens'), (record, cursor) => {
      cursor.update({ ...record, list: JSON.stringify(record.list) });
    });
  },
];

let connection: Promise<IDBDatabase> | undefined;

// A failed or closed connection is dropped; the next caller opens a new one.
export function database(): Promise<IDBDatabase> {
  const drop = () => (connection = undefined);
  connection ??= open(drop).catch((error: unknown) => {
    drop();
    throw error;
  });
  return connection;
}

function open(onClose: () => void): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(kName, kMigrations.length);
    request.onupgradeneeded = (event) => {
      const transaction = request.transaction!;
      const migrateAll = async () => {
        for (const migrate of kMigrations.slice(event.oldVersion)) await migrate(request.result, transaction);
      };
      migrateAll().catch(() => transaction.abort());
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
    request.onblocked = () => reject(new Error('another tab has an older version of this page open; close that tab'));
  });
}

function completed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

async function read<T>(store: string, query: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  const db = await database();
  const request = query(db.transaction(store).objectStore(store));
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
  const found = await read<{ list: string } | undefined>('tokens', (store) => store.get(id));
  return found ? (JSON.parse(found.list) as TokenChoice[]) : [];
}

export async function save(conversations: Conversation[], messages: Message[]): Promise<void> {
  const db = await database();
  const transaction = db.transaction(['conversations', 'messages', 'tokens'], 'readwrite');
  for (const conversation of conversations) transaction.objectStore('conversations').put(conversation);
  for (const { tokens, ...message } of messages) {
    // Thousands of tokens: written once, when the answer has ended.
    const hasNewTokens = tokens && tokens.length > 0 && !message.writing;
    if (hasNewTokens) transaction.objectStore('tokens').put({ id: message.id, conversation: message.conversation, list: JSON.stringify(tokens) });
    transaction.objectStore('messages').put({ ...message, hasTokens: hasNewTokens || message.hasTokens });
  }
  return completed(transaction);
}

// Updates the stored message in one transaction if `update` returns true. Returns the stored message.
export async function updateMessage(id: string, update: (record: Message) => boolean): Promise<Message | undefined> {
  const db = await database();
  const transaction = db.transaction('messages', 'readwrite');
  const records = transaction.objectStore('messages');
  let found: Message | undefined;
  records.get(id).onsuccess = (event) => {
    found = (event.target as IDBRequest<Message | undefined>).result;
    if (found && update(found)) records.put(found);
  };
  await completed(transaction);
  return found;
}

// Deletes messages with their tokens and stores others that changed with them, in one transaction.
export async function deleteMessages(ids: string[], changed: Message[]): Promise<void> {
  const db = await database();
  const transaction = db.transaction(['messages', 'tokens'], 'readwrite');
  for (const id of ids) for (const name of ['messages', 'tokens']) transaction.objectStore(name).delete(id);
  for (const { tokens: _, ...message } of changed) transaction.objectStore('messages').put(message);
  return completed(transaction);
}

// Messages with their tokens, for export.
export async function messagesWithTokens(conversation: string): Promise<Message[]> {
  const list = await messagesOf(conversation);
  for (const message of list) if (message.hasTokens) message.tokens = await tokensOf(message.id);
  return list;
}

export async function deleteRecords(conversation: string): Promise<void> {
  const db = await database();
  const transaction = db.transaction(['conversations', 'messages', 'tokens', 'drafts'], 'readwrite');
  transaction.objectStore('conversations').delete(conversation);
  transaction.objectStore('drafts').delete(conversation);
  for (const name of ['messages', 'tokens']) {
    const store = transaction.objectStore(name);
    store.index('conversation').openKeyCursor(conversation).onsuccess = (event) => {
      const cursor = (event.target as IDBRequest<IDBCursor | null>).result;
      if (!cursor) return;
      store.delete(cursor.primaryKey);
      transaction.objectStore('drafts').delete(IDBKeyRange.bound(`${cursor.primaryKey}:`, `${cursor.primaryKey}:\uffff`));
      cursor.continue();
    };
  }
  return completed(transaction);
}

export const draftOf = (id: string) => read<Draft | undefined>('drafts', (store) => store.get(id));
export const allDrafts = () => read<(Draft & { id: string })[]>('drafts', (store) => store.getAll());

export async function saveDraft(id: string, draft: Draft): Promise<void> {
  const db = await database();
  const transaction = db.transaction('drafts', 'readwrite');
  if (draft.text || draft.attachments.length) transaction.objectStore('drafts').put({ id, ...draft });
  else transaction.objectStore('drafts').delete(id);
  return completed(transaction);
}
