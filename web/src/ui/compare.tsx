// One prompt, two models or two settings, side by side. Either answer can become a conversation. What was asked and
// every answer to it stay, over a reload too, until the next question.
import { signal, type Signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { live, run } from '../answer';
import * as db from '../db';
import { keepText, keptText } from '../draft';
import { store, storeFailed } from '../keep';
import { addMessage, changeConversation, newId, panel, props, settings, settleInterrupted, startConversation } from '../state';
import type { Message, Settings } from '../types';
import { Dialog } from './dialog';
import { MessageView, type AnswerActions } from './message';
import { SamplingFields } from './settings';

interface Side {
  name: string;
  set: Signal<Settings | null>; // null: as the open conversation
  answers: Signal<Message[]>; // to the last question
  answer: Signal<Message | null>; // the one that is shown
  begins: Partial<Settings>; // how it differs until somebody says otherwise
}

const sides: Side[] = [
  { name: 'A', set: signal(null), answers: signal([]), answer: signal(null), begins: {} },
  { name: 'B', set: signal(null), answers: signal([]), answer: signal(null), begins: { temperature: 0 } },
];
const prompt = signal('');
const asked = signal('');

function settingsOf(side: Side): Settings {
  if (side.set.value) return side.set.value;
  const second = props.value?.models[1]?.name;
  const differs = side.name === 'B' && second ? { model: second } : side.begins;
  return { ...settings.value, ...differs };
}

const kPlace = 'compare'; // in the store; no conversation of the list
const kPrompt = 'compare:prompt';
const blank = (): Message => ({ id: newId(), conversation: kPlace, parent: null, role: 'assistant', content: '', created: Date.now() });
const question = (): Message => ({ ...blank(), role: 'user', content: asked.value });
const stopSide = ({ answer }: Side) => answer.value && live.value.get(answer.value.id)?.abort.abort();

// Asks a side; what has come of an answer already is gone on with.
function answer(side: Side, begin: Message = { ...blank(), model: settingsOf(side).model }): void {
  stopSide(side);
  begin.side = side.name;
  side.answer.value = begin;
  if (!side.answers.value.includes(begin)) side.answers.value = [...side.answers.value, begin];
  void run(begin, [question()], settingsOf(side));
}

// What was there when the page was closed.
async function bringBack(): Promise<void> {
  prompt.value ||= keptText(kPrompt) ?? '';
  if (asked.value) return;
  const list = (await db.messagesOf(kPlace)).sort((a, b) => a.created - b.created);
  await settleInterrupted(list);
  if (asked.value) return;
  asked.value = list.findLast((message) => message.role === 'user')?.content ?? '';
  for (const side of sides) {
    side.answers.value = list.filter((message) => message.side === side.name);
    side.answer.value = side.answers.value.at(-1) ?? null;
  }
}

function actionsOf(side: Side): AnswerActions {
  return {
    regenerate: () => answer(side),
    goOn: (message) => answer(side, message.toolCalls?.length ? undefined : message),
    take: (message, begin) => answer(side, { ...blank(), model: message.model, ...begin }),
    branches: () => side.answers.value,
    show: (other) => (side.answer.value = other),
  };
}

const isLive = ({ answer: { value } }: Side) => Boolean(value && live.value.has(value.id));

function askBoth(): void {
  if (!prompt.value.trim() || sides.some(isLive)) return;
  asked.value = prompt.value.trim();
  void db.erase(kPlace).catch(storeFailed);
  void store([], [question()]);
  for (const side of sides) {
    side.answers.value = [];
    answer(side);
  }
}

async function keepAsConversation(side: Side): Promise<void> {
  const message = side.answer.value!;
  const tokens = message.tokens ?? (message.hasTokens ? await db.tokensOf(message.id).catch(() => undefined) : undefined);
  const entry = startConversation(asked.value);
  changeConversation(entry.id, { settings: settingsOf(side) });
  const first: Message = { ...question(), conversation: entry.id };
  void addMessage(first);
  void addMessage({ ...message, tokens, hasTokens: false, side: undefined, id: newId(), conversation: entry.id, parent: first.id });
  panel.value = null;
}

// What is set otherwise than by default, in a line.
function told(set: Settings): string {
  const { model: _, system, tools: _tools, unreadTools: _unread, ...rest } = set;
  const numbers = Object.entries(rest).map(([name, value]) => `${name.replaceAll('_', ' ')} ${String(value)}`);
  return [...(system ? ['system prompt'] : []), ...numbers].join(', ');
}

function SideView({ side }: { side: Side }) {
  const models = props.value?.models ?? [];
  const message = side.answer.value;
  const set = settingsOf(side);
  const change = (next: Partial<Settings>) => (side.set.value = { ...set, ...next });
  return (
    <section class="side" aria-label={`Side ${side.name}`}>
      <label class="wide">
        <span>Model {side.name}</span>
        <select value={set.model ?? models[0]?.name} onChange={(event) => change({ model: event.currentTarget.value })}>
          {models.map((entry) => <option key={entry.name}>{entry.name}</option>)}
        </select>
      </label>
      <details>
        <summary>Settings <span class="faint">{told(set)}</span></summary>
        <label class="wide">
          <span>System prompt</span>
          <textarea rows={2} dir="auto" value={set.system ?? ''} onInput={(event) => change({ system: event.currentTarget.value })} />
        </label>
        <SamplingFields values={set} change={change} modelName={set.model} />
      </details>
      {message && <MessageView key={message.id} message={message} isLast version={live.value} actions={actionsOf(side)} />}
      {message && !isLive(side) && message.content && (
        <button type="button" onClick={() => void keepAsConversation(side)}>Go on with {side.name}</button>
      )}
    </section>
  );
}

export function ComparePanel() {
  useEffect(() => void bringBack().catch(storeFailed), []);
  return (
    <Dialog title="Compare" class="is-full" onClose={() => (panel.value = null)}>
      <form class="line" onSubmit={(event) => { event.preventDefault(); askBoth(); }}>
        <textarea aria-label="Prompt for both" rows={2} placeholder="One prompt for both sides" dir="auto" value={prompt.value}
                  onInput={(event) => { prompt.value = event.currentTarget.value; keepText(kPrompt, prompt.value); }}
                  onKeyDown={(event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); askBoth(); } }} />
        {sides.some(isLive) ? <button type="button" onClick={() => sides.forEach(stopSide)}>Stop both</button>
                : <button type="submit" class="main" disabled={!prompt.value.trim()}>Ask both</button>}
      </form>
      <div class="sides">{sides.map((side) => <SideView key={side.name} side={side} />)}</div>
    </Dialog>
  );
}
