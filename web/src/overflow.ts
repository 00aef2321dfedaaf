// What to do when a conversation exceeds the context. Nothing is ever left out silently: the user chooses, earlier messages stay
// visible, and the choice can be undone.
import { signal } from '@preact/signals';
import { continueAnswer, sentPart, textOf } from './answer';
import { call } from './api';
import { countTokens } from './context';
import { changeConversation, conversation, model, path } from './state';
import { thinkingOf } from './thinking';
import type { ContextCut, Message } from './types';

const kTarget = 0.5; // of the context, filled after messages were left out
const kLastResort = 0.9;
const kPiece = 0.5; // of the context, summarized at once
const kSummary = 0.1; // of the context, for the summary

// What is being done; empty: nothing.
export const overflowProgress = signal('');
export const overflowError = signal('');
let abort = new AbortController();
export const cancelSummary = () => abort.abort();

export const kAloneTooLong = 'Your last message alone fills the context. Shorten it, or start the server with a larger context (zinc serve -c).';

const isEmptyAnswer = (message: Message) => message.role === 'assistant' && !message.content && !message.toolCalls?.length;

// The earliest user message from which on the conversation fills at most the target; found by binary search.
async function findCut(list: Message[], context: number): Promise<number> {
  const starts = list.flatMap(({ role }, i) => (role === 'user' ? [i] : []));
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((await countTokens(list.slice(starts[middle]))) <= context * kTarget) high = middle;
    else low = middle + 1;
  }
  const isTooLong = starts.length === 0 || (await countTokens(list.slice(starts[low]))) > context * kLastResort;
  if (isTooLong) throw new Error(kAloneTooLong);
  return starts[low];
}

const kSpeakers = { user: 'User', assistant: 'Assistant', tool: 'Tool' };

// Pieces that fit in the context, each summarized together with the summary of the earlier ones.
async function summarize(list: Message[], context: number): Promise<string> {
  const text = list.map((message) => `${kSpeakers[message.role]}: ${textOf(message)}`).join('\n\n');
  const size = Math.max(500, Math.floor((text.length / Math.max(1, await countTokens(list))) * context * kPiece));
  const nPieces = Math.ceil(text.length / size);
  let summary = '';
  for (let i = 0; i < nPieces; ++i) {
    overflowProgress.value = nPieces > 1 ? `Summarizing, part ${i + 1} of ${nPieces}…` : 'Summarizing…';
    const before = summary ? `Summary of what came before:\n${summary}\n\n` : '';
    const content =
      'Summarize the conversation below in its language. Keep facts, names, numbers, decisions and open questions. ' +
      `Write only the summary.\n\n${before}Conversation:\n${text.slice(i * size, (i + 1) * size)}`;
    const body = {
      model: model.value?.name, messages: [{ role: 'user', content }], max_tokens: Math.max(64, Math.floor(context * kSummary)), temperature: 0,
      ...(thinkingOf(model.value).can_disable ? { enable_thinking: false } : {}),
    };
    const answer = await call<{ choices: { message: { content: string | null } }[] }>('/v1/chat/completions', body, abort.signal);
    summary = answer.choices[0].message.content?.trim() ?? '';
    if (!summary) throw new Error('The model returned an empty summary.');
  }
  return summary;
}

// Afterwards an answer that did not fit is requested again or continued.
async function shorten(withSummary: boolean): Promise<void> {
  const entry = conversation.value!;
  const context = model.value?.context ?? 0;
  const sent = sentPart(path.value).filter((message) => !isEmptyAnswer(message));
  const cut = await findCut(sent, context);
  if (cut === 0) throw new Error('Everything fits in the context; nothing needs to be left out.');
  const change: ContextCut = { from: sent[cut].id };
  if (withSummary) change.summary = await summarize(sent.slice(0, cut), context);
  if (conversation.value?.id !== entry.id) return;
  changeConversation(entry.id, { context: change });
  const last = path.value.at(-1);
  if (last?.notice?.kind === 'context') continueAnswer(last);
}

async function run(withSummary: boolean): Promise<void> {
  if (overflowProgress.value || !conversation.value) return;
  abort = new AbortController();
  overflowError.value = '';
  overflowProgress.value = 'Counting tokens…';
  try {
    await shorten(withSummary);
  } catch (error) {
    if (!abort.signal.aborted) overflowError.value = error instanceof Error ? error.message : String(error);
  }
  overflowProgress.value = '';
}

export const leaveOutOldest = () => run(false);
export const continueWithSummary = () => run(true);
export const sendAllAgain = () => changeConversation(conversation.value!.id, { context: undefined });
