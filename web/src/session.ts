// Conversation lifecycle: loading at startup, delete and undo, changes by other tabs.
import { batch } from '@preact/signals';
import * as db from './db';
import { restoreDrafts, removeDrafts, loadDrafts } from './draft';
import { dropPendingWrites, hasPendingWrite, storeFailed, restorePendingWrites, withPendingWrites, streams } from './persist';
import { conversations, messages, openConversation, openFromAddress, openId, showToast, markInterrupted } from './state';
import { listen, broadcast, streamedElsewhere, type TabMessage } from './tabs';
import type { Message } from './types';

export async function loadAll(): Promise<void> {
  listen((message) => void applyTabMessage(message).catch(storeFailed));
  setInterval(() => void findOrphanedAnswers().catch(storeFailed), kOrphanCheckMs);
  try {
    await restorePendingWrites();
    conversations.value = await db.allConversations();
    await loadDrafts();
    await openFromAddress();
  } catch (error) {
    storeFailed(error);
  }
}

export async function deleteConversation(id: string): Promise<void> {
  const entry = conversations.value.find((other) => other.id === id);
  if (!entry) return;
  const active = [...streams.values()].filter((stream) => stream.message.conversation === id);
  for (const stream of active) stream.stop();
  await Promise.all(active.map((stream) => stream.ended));
  const saved = withPendingWrites(id, await db.messagesWithTokens(id));
  const drafts = removeDrafts(id, saved.map((message) => message.id));
  await db.deleteRecords(id);
  dropPendingWrites(id);
  broadcast({ deleted: id });
  await removeFromList(id);
  showToast(`Deleted “${entry.title}”`, 'Undo', () => {
    void db.save([entry], saved).then(() => {
      restoreDrafts(drafts);
      conversations.value = [...conversations.value, entry];
      broadcast({ conversations: [id] });
      void openConversation(id);
    }, storeFailed);
  });
}

async function removeFromList(id: string): Promise<void> {
  conversations.value = conversations.value.filter((other) => other.id !== id);
  if (openId.value === id) await openConversation(null);
}

// Applies changes of other tabs. This tab's pending writes are newer and win.
async function applyTabMessage({ conversations: entries = [], messages: changed = [], deleted, removed = [], query = [], closed = [] }: TabMessage): Promise<void> {
  const own = query.filter((id) => streams.has(id));
  if (own.length > 0) broadcast({ streaming: own });
  if (deleted) await removeFromList(deleted);
  if (removed.some((id) => messages.value.has(id))) messages.value = new Map([...messages.value].filter(([id]) => !removed.includes(id)));
  const read = await Promise.all(entries.filter((id) => !hasPendingWrite(id)).map(db.conversationOf));
  const updated = await Promise.all(changed.filter((id) => !hasPendingWrite(id)).map(db.messageOf));
  batch(() => {
    for (const entry of read) {
      if (entry && !hasPendingWrite(entry.id)) conversations.value = [...conversations.value.filter((other) => other.id !== entry.id), entry];
    }
    const displayed = updated.filter((message) => message && message.conversation === openId.value && !hasPendingWrite(message.id)) as Message[];
    if (displayed.length > 0) messages.value = new Map([...messages.value, ...displayed.map((message) => [message.id, message] as const)]);
  });
  if (closed.some((id) => messages.value.has(id))) await interruptOrphaned(closed);
}

// A crashed tab sends no message, so its answers are found by polling.
const kOrphanCheckMs = 5000;
async function findOrphanedAnswers(): Promise<void> {
  const open = [...messages.value.values()].filter((message) => message.writing && !streams.has(message.id)).map(({ id }) => id);
  const elsewhere = await streamedElsewhere(open);
  const orphaned = open.filter((id) => !elsewhere.has(id));
  if (orphaned.length > 0) await interruptOrphaned(orphaned);
}

// The tab that streamed these answers was closed: marks them as interrupted.
async function interruptOrphaned(ids: string[]): Promise<void> {
  await restorePendingWrites();
  const read = (await Promise.all(ids.map(db.messageOf))).filter((message) => message !== undefined);
  await markInterrupted(read);
  const displayed = read.filter((message) => message.conversation === openId.value);
  messages.value = new Map([...messages.value, ...displayed.map((message) => [message.id, message] as const)]);
}
