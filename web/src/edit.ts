// Changing stored messages: editing an answer in place, deleting one message. Both can be undone.
import { batch } from '@preact/signals';
import * as db from './db';
import { removeDrafts, restoreDrafts } from './draft';
import { dropPendingMessages, store, storeFailed, streams } from './persist';
import { changeConversation, conversations, messages, openId, path, showToast } from './state';
import { broadcast } from './tabs';
import type { Conversation, Message } from './types';

// A changed message invalidates the token counts after it.
function forgetUsageFrom(message: Message): Message[] {
  const at = path.value.findIndex(({ id }) => id === message.id);
  const after = at < 0 ? [] : path.value.slice(at).filter(({ usage }) => usage);
  for (const entry of after) entry.usage = undefined;
  return after;
}

// The record is replaced, not modified: views of unchanged records are not rendered again.
export async function editAnswer(message: Message, text: string): Promise<void> {
  if (text === message.content) return;
  const tokens = message.tokens ?? (message.hasTokens ? await db.tokensOf(message.id).catch(() => undefined) : undefined);
  const replace = (next: Message) => {
    const stale = forgetUsageFrom(next).filter(({ id }) => id !== next.id);
    messages.value = new Map(messages.value).set(next.id, next);
    void store([], [next, ...stale]);
  };
  replace({ ...message, content: text, tokens: undefined, hasTokens: false, edited: true, notice: undefined, usage: undefined });
  showToast('Answer changed', 'Undo', () => replace({ ...message, tokens, usage: undefined }));
}

// Tool results belong to the message that called the tools.
function withToolResults(message: Message): Message[] {
  const out = [message];
  if (!message.toolCalls?.length) return out;
  for (;;) {
    const next = [...messages.value.values()].find((other) => other.role === 'tool' && other.parent === out.at(-1)!.id);
    if (!next) return out;
    out.push(next);
  }
}

// The messages after a deleted one follow its parent. Another branch is shown if the deleted message was the last one.
export async function deleteMessage(message: Message): Promise<void> {
  const entry = conversations.value.find(({ id }) => id === message.conversation);
  if (!entry) return;
  const stream = streams.get(message.id);
  stream?.stop();
  await stream?.ended;
  const removed = withToolResults(message);
  const ids = new Set(removed.map(({ id }) => id));
  for (const gone of removed) if (gone.hasTokens) gone.tokens ??= await db.tokensOf(gone.id).catch(() => undefined);
  const orphans = [...messages.value.values()].filter(({ parent }) => parent && ids.has(parent)).filter(({ id }) => !ids.has(id));
  const parents = new Map(orphans.map((orphan) => [orphan, orphan.parent]));
  const stale = forgetUsageFrom(message).filter(({ id }) => !ids.has(id));
  for (const orphan of orphans) orphan.parent = message.parent;
  const all = new Map([...messages.value].filter(([id]) => !ids.has(id)));
  const head = ids.has(entry.head ?? '') ? headAfter(all, message, entry) : entry.head;
  const drafts = removeDrafts(message.id, [...ids]);
  batch(() => {
    if (openId.value === entry.id) messages.value = all;
    changeConversation(entry.id, { head });
  });
  await write(ids, [...new Set([...orphans, ...stale])]);
  showToast(message.role === 'user' ? 'Message deleted' : 'Answer deleted', 'Undo', () => {
    for (const [orphan, parent] of parents) orphan.parent = parent;
    if (openId.value === entry.id) messages.value = new Map([...messages.value, ...removed.map((gone) => [gone.id, gone] as const)]);
    void store([], [...removed, ...orphans]).then(() => changeConversation(entry.id, { head: entry.head }));
    restoreDrafts(drafts);
  });
}

function headAfter(all: Map<string, Message>, { parent, role }: Message, entry: Conversation): string | null {
  const siblings = [...all.values()].filter((other) => other.conversation === entry.id && other.parent === parent && other.role === role);
  const newest = (list: Message[]) => list.sort((a, b) => a.created - b.created).at(-1);
  let head = newest(siblings)?.id ?? parent;
  for (;;) {
    const next = head && newest([...all.values()].filter((other) => other.parent === head));
    if (!next) return head;
    head = next.id;
  }
}

async function write(ids: Set<string>, changed: Message[]): Promise<void> {
  try {
    dropPendingMessages(ids);
    await db.deleteMessages([...ids], changed);
    broadcast({ messages: changed.map(({ id }) => id), removed: [...ids] });
  } catch (error) {
    storeFailed(error);
  }
}
