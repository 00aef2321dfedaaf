// Conversations as a whole: read at the start, deleted and brought back, changed by other tabs.
import { batch } from '@preact/signals';
import * as db from './db';
import { bringBackDrafts, forgetDrafts, loadDrafts } from './draft';
import { forgetUnsaved, isUnsaved, storeFailed, takeTails, withUnsaved, writings } from './keep';
import { conversations, messages, openConversation, openFromAddress, openId, say, settleInterrupted } from './state';
import { listen, tell, writtenElsewhere, type News } from './tabs';
import type { Message } from './types';

export async function loadAll(): Promise<void> {
  listen((news) => void takeNews(news).catch(storeFailed));
  setInterval(() => void lookForGone().catch(storeFailed), kLookMs);
  try {
    await takeTails();
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
  const open = [...writings.values()].filter((writing) => writing.message.conversation === id);
  for (const writing of open) writing.stop();
  await Promise.all(open.map((writing) => writing.ended));
  const kept = withUnsaved(id, await db.wholeMessagesOf(id));
  const drafts = forgetDrafts(id, kept.map((message) => message.id));
  await db.erase(id);
  forgetUnsaved(id);
  tell({ erased: id });
  await forget(id);
  say(`Deleted “${entry.title}”`, 'Undo', () => {
    void db.save([entry], kept).then(() => {
      bringBackDrafts(drafts);
      conversations.value = [...conversations.value, entry];
      tell({ conversations: [id] });
      void openConversation(id);
    }, storeFailed);
  });
}

async function forget(id: string): Promise<void> {
  conversations.value = conversations.value.filter((other) => other.id !== id);
  if (openId.value === id) await openConversation(null);
}

// What other tabs changed is shown here too. What this tab has not stored yet is newer.
async function takeNews({ conversations: entries = [], messages: changed = [], erased, asks = [], left = [] }: News): Promise<void> {
  const mine = asks.filter((id) => writings.has(id));
  if (mine.length > 0) tell({ writes: mine });
  if (erased) await forget(erased);
  const read = await Promise.all(entries.filter((id) => !isUnsaved(id)).map(db.conversationOf));
  const shown = await Promise.all(changed.filter((id) => !isUnsaved(id)).map(db.messageOf));
  batch(() => {
    for (const entry of read) {
      if (entry && !isUnsaved(entry.id)) conversations.value = [...conversations.value.filter((other) => other.id !== entry.id), entry];
    }
    const here = shown.filter((message) => message && message.conversation === openId.value && !isUnsaved(message.id)) as Message[];
    if (here.length > 0) messages.value = new Map([...messages.value, ...here.map((message) => [message.id, message] as const)]);
  });
  if (left.some((id) => messages.value.has(id))) await takeOver(left);
}

// A tab that crashed said nothing.
const kLookMs = 5000;
async function lookForGone(): Promise<void> {
  const open = [...messages.value.values()].filter((message) => message.writing && !writings.has(message.id)).map(({ id }) => id);
  const found = await writtenElsewhere(open);
  const gone = open.filter((id) => !found.has(id));
  if (gone.length > 0) await takeOver(gone);
}

// The tab that wrote these is gone: what it had written is shown as interrupted.
async function takeOver(ids: string[]): Promise<void> {
  await takeTails();
  const read = (await Promise.all(ids.map(db.messageOf))).filter((message) => message !== undefined);
  await settleInterrupted(read);
  const here = read.filter((message) => message.conversation === openId.value);
  messages.value = new Map([...messages.value, ...here.map((message) => [message.id, message] as const)]);
}
