// The browser's own store. Every version of the schema is a step that brings the one before to it; steps are never
// changed once a release has had them.
import type { Conversation, Message } from './types';

const kName = 'zinc';
type Step = (db: IDBDatabase, change: IDBTransaction) => void;

const kSteps: Step[] = [
  // 1: conversations with their messages inside.
  (db) => {
    db.createObjectStore('conversations', { keyPath: 'id' });
  },
  // 2: messages on their own, so that a word more in one does not write them all again.
  (db, change) => {
    const messages = db.createObjectStore('messages', { keyPath: 'id' });
    messages.createIndex('conversation', 'conversation');
    const conversations = change.objectStore('conversations');
    conversations.openCursor().onsuccess = (event) => {
      const cursor = (event.target as IDBRequest<IDBCursorWithValue | null>).result;
      if (!cursor) return;
      const { messages: inside = [], ...rest } = cursor.value as Conversation & { messages?: Message[] };
      for (const message of inside) messages.put({ ...message, conversation: rest.id });
      cursor.update({ ...rest, settings: rest.settings ?? {}, head: rest.head ?? inside.at(-1)?.id ?? null });
      cursor.continue();
    };
  },
];

let opened: Promise<IDBDatabase> | undefined;

export function database(): Promise<IDBDatabase> {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(kName, kSteps.length);
    request.onupgradeneeded = (event) => {
      for (const step of kSteps.slice(event.oldVersion)) step(request.result, request.transaction!);
    };
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error('another tab holds an older version of the page open; close it'));
  });
  return opened;
}

function done(change: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    change.oncomplete = () => resolve();
    change.onerror = change.onabort = () => reject(change.error);
  });
}

function result<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export async function allConversations(): Promise<Conversation[]> {
  const db = await database();
  return result(db.transaction('conversations').objectStore('conversations').getAll());
}

export async function messagesOf(conversation: string): Promise<Message[]> {
  const db = await database();
  return result(db.transaction('messages').objectStore('messages').index('conversation').getAll(conversation));
}

export async function messageOf(id: string): Promise<Message | undefined> {
  const db = await database();
  return result(db.transaction('messages').objectStore('messages').get(id));
}

// Calls `visit` with every message there is, in no order.
export async function eachMessage(visit: (message: Message) => void): Promise<void> {
  const db = await database();
  for (const message of await result(db.transaction('messages').objectStore('messages').getAll())) visit(message);
}

export async function save(conversations: Conversation[], messages: Message[]): Promise<void> {
  const db = await database();
  const change = db.transaction(['conversations', 'messages'], 'readwrite');
  for (const conversation of conversations) change.objectStore('conversations').put(conversation);
  for (const message of messages) change.objectStore('messages').put(message);
  return done(change);
}

export async function erase(conversation: string): Promise<void> {
  const db = await database();
  const change = db.transaction(['conversations', 'messages'], 'readwrite');
  change.objectStore('conversations').delete(conversation);
  const messages = change.objectStore('messages');
  messages.index('conversation').openKeyCursor(conversation).onsuccess = (event) => {
    const cursor = (event.target as IDBRequest<IDBCursor | null>).result;
    if (!cursor) return;
    messages.delete(cursor.primaryKey);
    cursor.continue();
  };
  return done(change);
}
