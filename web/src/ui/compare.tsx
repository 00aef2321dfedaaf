// One prompt, two models or settings, side by side. Either answer can become a conversation. The prompt and all answers
// are kept, also across a reload, until the next prompt.
import { signal, type Signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { live, streamAnswer } from '../answer';
import * as db from '../db';
import { setDraftText, draftText } from '../draft';
import { store, storeFailed } from '../persist';
import { loadingModel, loadModel, modelChoices } from '../models';
import {
  addMessage, changeConversation, library, model, newId, panel, props, refreshLibrary, settings, markInterrupted, startConversation,
} from '../state';
import type { Message, Settings } from '../types';
import { Dialog } from './dialog';
import { MessageView, type AnswerActions } from './message';
import { labelOf, SamplingFields } from './settings';

interface Side {
  name: string;
  settings: Signal<Settings | null>; // null: same as the open conversation
  answers: Signal<Message[]>; // to the last prompt
  answer: Signal<Message | null>; // the displayed one
  defaults: Partial<Settings>; // default differences of this side
}

const sides: Side[] = [
  { name: 'A', settings: signal(null), answers: signal([]), answer: signal(null), defaults: {} },
  { name: 'B', settings: signal(null), answers: signal([]), answer: signal(null), defaults: { temperature: 0 } },
];
const prompt = signal('');
const sentPrompt = signal('');

// A is as the open conversation. B has another model, loaded or installed; if there is no other, the same at temperature 0.
function settingsOf(side: Side): Settings {
  if (side.settings.value) return side.settings.value;
  const first = model.value?.name;
  const other = modelChoices().find(({ name }) => name !== first)?.name;
  const differs = side.name === 'A' ? { model: first } : other ? { model: other } : { model: first, ...side.defaults };
  return { ...settings.value, ...differs };
}

// Loads the models of both sides that are only installed, beside the loaded ones. Returns what went wrong.
async function loadSides(): Promise<string> {
  for (const side of sides) {
    const name = settingsOf(side).model;
    const entry = library.value?.data.find((other) => other.id === name && !other.active);
    if (!entry || props.value?.models.some((other) => other.name === name)) continue;
    const error = await loadModel(entry, true);
    if (error) return error;
  }
  return '';
}

const kConversation = 'compare'; // id in the store; not a listed conversation
const kPromptKey = 'compare:prompt';
const newAnswer = (): Message => ({ id: newId(), conversation: kConversation, parent: null, role: 'assistant', content: '', created: Date.now() });
const promptMessage = (): Message => ({ ...newAnswer(), role: 'user', content: sentPrompt.value });
const stopSide = ({ answer }: Side) => answer.value && live.value.get(answer.value.id)?.abort.abort();

// Sends the prompt to one side; a partial answer is continued.
function startAnswer(side: Side, begin: Message = { ...newAnswer(), model: settingsOf(side).model }): void {
  stopSide(side);
  begin.side = side.name;
  side.answer.value = begin;
  if (!side.answers.value.includes(begin)) side.answers.value = [...side.answers.value, begin];
  void streamAnswer(begin, [promptMessage()], settingsOf(side));
}

// Restores the state from before the page was closed.
async function restore(): Promise<void> {
  prompt.value ||= draftText(kPromptKey) ?? '';
  if (sentPrompt.value) return;
  const list = (await db.messagesOf(kConversation)).sort((a, b) => a.created - b.created);
  await markInterrupted(list);
  if (sentPrompt.value) return;
  sentPrompt.value = list.findLast((message) => message.role === 'user')?.content ?? '';
  for (const side of sides) {
    side.answers.value = list.filter((message) => message.side === side.name);
    side.answer.value = side.answers.value.at(-1) ?? null;
  }
}

function actionsOf(side: Side): AnswerActions {
  return {
    regenerate: () => startAnswer(side),
    continueAnswer: (message) => startAnswer(side, message.toolCalls?.length ? undefined : message),
    branchWithAlternative: (message, begin) => startAnswer(side, { ...newAnswer(), model: message.model, ...begin }),
    branches: () => side.answers.value,
    show: (other) => (side.answer.value = other),
  };
}

const isStreaming = ({ answer: { value } }: Side) => Boolean(value && live.value.has(value.id));

const loadError = signal('');

async function sendToBoth(): Promise<void> {
  if (!prompt.value.trim() || sides.some(isStreaming) || loadingModel.value) return;
  loadError.value = await loadSides();
  if (loadError.value) return;
  sentPrompt.value = prompt.value.trim();
  void db.deleteRecords(kConversation).catch(storeFailed);
  void store([], [promptMessage()]);
  for (const side of sides) {
    side.answers.value = [];
    startAnswer(side);
  }
}

async function openAsConversation(side: Side): Promise<void> {
  const message = side.answer.value!;
  const tokens = message.tokens ?? (message.hasTokens ? await db.tokensOf(message.id).catch(() => undefined) : undefined);
  const entry = startConversation(sentPrompt.value);
  changeConversation(entry.id, { settings: settingsOf(side) });
  const first: Message = { ...promptMessage(), conversation: entry.id };
  void addMessage(first);
  void addMessage({ ...message, tokens, hasTokens: false, side: undefined, id: newId(), conversation: entry.id, parent: first.id });
  panel.value = null;
}

// One-line summary of settings that differ from the defaults, in the words of the settings panel.
function summaryOf(set: Settings): string {
  const values = Object.entries(set).flatMap(([name, value]) => (labelOf(name) ? [`${labelOf(name)!.toLowerCase()} ${String(value)}`] : []));
  return [...(set.system ? ['system prompt'] : []), ...values].join(', ') || 'defaults of the model';
}

function SideView({ side }: { side: Side }) {
  const message = side.answer.value;
  const set = settingsOf(side);
  const change = (next: Partial<Settings>) => (side.settings.value = { ...set, ...next });
  return (
    <section class="side" aria-label={`Side ${side.name}`}>
      <label class="wide">
        <span>Model {side.name}</span>
        <select value={set.model} onChange={(event) => change({ model: event.currentTarget.value })}>
          {modelChoices().map(({ name, isLoaded }) => <option key={name} value={name}>{isLoaded ? name : `${name} (loads when asked)`}</option>)}
        </select>
      </label>
      <details>
        <summary>Settings <span class="faint">{summaryOf(set)}</span></summary>
        <label class="wide">
          <span>System prompt</span>
          <textarea rows={2} dir="auto" value={set.system ?? ''} onInput={(event) => change({ system: event.currentTarget.value })} />
        </label>
        <SamplingFields values={set} change={change} modelName={set.model} />
      </details>
      {message && <MessageView key={message.id} message={message} isLast version={live.value} actions={actionsOf(side)} />}
      {message && !isStreaming(side) && message.content && (
        <button type="button" onClick={() => void openAsConversation(side)}>Continue with {side.name}</button>
      )}
    </section>
  );
}

function Explanation() {
  const isOneModel = modelChoices().length < 2;
  return (
    <p class="hint">
      One question, two answers side by side: choose what differs, ask, and continue with the better answer.
      {isOneModel && ' Only one model is installed, so B is the same model at temperature 0, which always takes the likeliest word.'}
    </p>
  );
}

export function ComparePanel() {
  useEffect(() => {
    void restore().catch(storeFailed);
    void refreshLibrary().catch(() => undefined);
  }, []);
  return (
    <Dialog title="Compare" class="is-full" onClose={() => (panel.value = null)}>
      <Explanation />
      <form class="line" onSubmit={(event) => { event.preventDefault(); void sendToBoth(); }}>
        <textarea aria-label="Prompt for both" rows={2} placeholder="One prompt for both sides" dir="auto" value={prompt.value}
                  onInput={(event) => { prompt.value = event.currentTarget.value; setDraftText(kPromptKey, prompt.value); }}
                  onKeyDown={(event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); void sendToBoth(); } }} />
        {sides.some(isStreaming) ? <button type="button" onClick={() => sides.forEach(stopSide)}>Stop both</button>
                : <button type="submit" class="main" disabled={!prompt.value.trim()}>Ask both</button>}
      </form>
      {loadingModel.value && <p class="hint" role="status">Loading {loadingModel.value}…</p>}
      {loadError.value && <p class="wrong" role="alert">{loadError.value}</p>}
      <div class="sides">{sides.map((side) => <SideView key={side.name} side={side} />)}</div>
    </Dialog>
  );
}
