// One prompt, two models or two settings, side by side. Either answer can become a conversation.
import { useSignal, type Signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { live, run } from '../answer';
import { addMessage, changeConversation, newId, panel, props, settings, startConversation } from '../state';
import type { Message, Settings } from '../types';
import { Dialog } from './dialog';
import { MessageView } from './message';
import { SamplingFields } from './settings';

interface Side {
  name: string;
  set: Signal<Settings>;
  answer: Signal<Message | null>;
}

const blank = (): Message => ({ id: newId(), conversation: '', parent: null, role: 'assistant', content: '', created: Date.now() });

function keepAsConversation(prompt: string, side: Side): void {
  const entry = startConversation(prompt);
  changeConversation(entry.id, { settings: side.set.value });
  const question: Message = { ...blank(), role: 'user', conversation: entry.id, content: prompt };
  addMessage(question);
  addMessage({ ...side.answer.value!, id: newId(), conversation: entry.id, parent: question.id });
  panel.value = null;
}

function SideView({ side, prompt }: { side: Side; prompt: string }) {
  const models = props.value?.models ?? [];
  const message = side.answer.value;
  const isLive = message ? live.value.has(message.id) : false;
  const change = (next: Partial<Settings>) => (side.set.value = { ...side.set.value, ...next });
  return (
    <section class="side" aria-label={`Side ${side.name}`}>
      <label class="wide">
        <span>Model {side.name}</span>
        <select value={side.set.value.model ?? models[0]?.name} onChange={(event) => change({ model: event.currentTarget.value })}>
          {models.map((entry) => <option key={entry.name}>{entry.name}</option>)}
        </select>
      </label>
      <details>
        <summary>Settings</summary>
        <label class="wide">
          <span>System prompt</span>
          <textarea rows={2} value={side.set.value.system ?? ''} onChange={(event) => change({ system: event.currentTarget.value })} />
        </label>
        <SamplingFields values={side.set.value} change={change} />
      </details>
      {message && <MessageView key={message.id} message={message} isLast version={live.value} />}
      {message && !isLive && message.content && (
        <button type="button" onClick={() => keepAsConversation(prompt, side)}>Go on with {side.name}</button>
      )}
    </section>
  );
}

export function ComparePanel() {
  const prompt = useSignal('');
  const asked = useSignal('');
  const second = props.value?.models[1]?.name;
  const a = useSignal<Settings>({ ...settings.value });
  const b = useSignal<Settings>({ ...settings.value, ...(second ? { model: second } : { temperature: 0 }) });
  const answerA = useSignal<Message | null>(null);
  const answerB = useSignal<Message | null>(null);
  const sides = useMemo<Side[]>(() => [{ name: 'A', set: a, answer: answerA }, { name: 'B', set: b, answer: answerB }], []);
  const stopAll = () => sides.forEach((side) => side.answer.value && live.value.get(side.answer.value.id)?.abort.abort());
  useEffect(() => stopAll, []);
  const start = () => {
    if (!prompt.value.trim()) return;
    stopAll();
    asked.value = prompt.value.trim();
    const question: Message = { ...blank(), role: 'user', content: asked.value };
    for (const side of sides) {
      const message = { ...blank(), model: side.set.value.model };
      side.answer.value = message;
      void run(message, [question], side.set.value, false);
    }
  };
  return (
    <Dialog title="Compare" class="is-full" onClose={() => (panel.value = null)}>
      <form class="line" onSubmit={(event) => { event.preventDefault(); start(); }}>
        <textarea aria-label="Prompt for both" rows={2} placeholder="One prompt for both sides" value={prompt.value}
                  onInput={(event) => (prompt.value = event.currentTarget.value)}
                  onKeyDown={(event) => { if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); start(); } }} />
        <button type="submit" class="main" disabled={!prompt.value.trim()}>Ask both</button>
      </form>
      <div class="sides">{sides.map((side) => <SideView key={side.name} side={side} prompt={asked.value} />)}</div>
    </Dialog>
  );
}
