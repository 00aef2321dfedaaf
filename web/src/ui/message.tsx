// One message. Far from the window it is plain text, which costs nothing; near it, it becomes what it is.
import { useSignal } from '@preact/signals';
import { Component, type ComponentChildren } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { continueAnswer, editAndFork, giveToolResult, live, regenerate, takeAlternative, type Live } from '../answer';
import { keepText, keptText } from '../draft';
import { MarkdownView } from '../markdown';
import { openConversation, path, settings, showBranch, siblings } from '../state';
import type { Message, ToolCall } from '../types';
import { copyText } from './copy';
import { stepTo } from './follow';
import { count, plural, rate, seconds } from './format';
import { Icon, IconButton } from './icon';
import { whenNear } from './near';
import { Probabilities } from './probability';

// What can be done with an answer, where it is shown.
export interface AnswerActions {
  regenerate: (message: Message) => void;
  goOn: (message: Message) => void;
  take: (message: Message, begin: Partial<Message>) => void; // an alternative, and go on from there
  branches: (message: Message) => Message[]; // the message and what stands beside it
  show: (message: Message) => void; // one of them
}
const kInConversation: AnswerActions = {
  regenerate, goOn: continueAnswer, take: takeAlternative, branches: siblings, show: showBranch,
};

// The markdown of a message, drawn as it grows.
function Prose({ message, field, state }: { message: Message; field: 'content' | 'reasoning'; state?: Live }) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView | null>(null);
  useLayoutEffect(() => {
    view.current ??= new MarkdownView(place.current!);
    const draw = () => view.current!.update(message[field] ?? '', false);
    if (!state) {
      view.current.update(message[field] ?? '', true);
      return;
    }
    draw();
    state.views.add(draw);
    return () => void state.views.delete(draw);
  }, [message, state, state ? '' : message[field]]);
  return <div class="prose" ref={place} />;
}

function Reasoning({ message, state }: { message: Message; state?: Live }) {
  const isThinking = state?.phase.value === 'thinking';
  const tokens = message.reasoningTokens ?? 0;
  void state?.nTokens.value; // counts go on while it thinks
  return (
    <details class="thought">
      <summary>
        <Icon name="right" />
        <span>{isThinking ? 'Thinking' : 'Thought'}{message.reasoningMs ? ` for ${seconds(message.reasoningMs)}` : ''}</span>
        {tokens > 0 && <span class="faint">{plural(tokens, 'token')}</span>}
      </summary>
      <Prose message={message} field="reasoning" state={state} />
    </details>
  );
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// The results that stand behind a message, and whether more can be given: not once something else follows.
function resultsBehind(message: Message): { results: Message[]; isOpen: boolean } {
  const at = path.value.findIndex(({ id }) => id === message.id);
  const after = at < 0 ? [] : path.value.slice(at + 1);
  const end = after.findIndex(({ role }) => role !== 'tool');
  return { results: end < 0 ? after : after.slice(0, end), isOpen: end < 0 };
}

// `isAsked`: the call is whole, and its result is waited for. `place`: where the result is kept while it is written.
function CallCard({ message, call, isAsked, place }: { message: Message; call: ToolCall; isAsked: boolean; place: string }) {
  const { results, isOpen } = resultsBehind(message);
  const answer = results.find(({ toolCallId }) => toolCallId === call.id);
  const text = useSignal(keptText(place) ?? '');
  return (
    <section class="card" aria-label={`Call of ${call.name}`}>
      <header><Icon name="box" /> <strong>{call.name}</strong> <span class="faint">tool call</span></header>
      <pre tabindex={0}><code>{pretty(call.arguments)}</code></pre>
      {answer && <pre class="result" tabindex={0}><code>{answer.content}</code></pre>}
      {!answer && isAsked && isOpen && (
        <form onSubmit={(event) => { event.preventDefault(); keepText(place, ''); giveToolResult(call, text.value); }}>
          <textarea aria-label={`Result of ${call.name}`} placeholder="What the tool gave back" rows={2} value={text.value} dir="auto"
                    onInput={(event) => { text.value = event.currentTarget.value; keepText(place, text.value); }} />
          <button type="submit">Send result</button>
        </form>
      )}
    </section>
  );
}

function NoticeBar({ message, actions }: { message: Message; actions: AnswerActions }) {
  const { kind, text } = message.notice!;
  const goes = <button type="button" onClick={() => actions.goOn(message)}>Continue</button>;
  const again = <button type="button" onClick={() => actions.regenerate(message)}>Regenerate</button>;
  const retry = <button type="button" onClick={() => actions.goOn(message)}>Retry</button>;
  const fresh = <button type="button" onClick={() => void openConversation(null)}>New conversation</button>;
  const button = { length: goes, context: fresh, stopped: goes, empty: again, lost: retry, error: retry }[kind];
  return (
    <div class={`notice is-${kind}`} role="status">
      <p>
        {text}
        {kind === 'context' && ' Nothing was cut: start a new conversation, edit an earlier message to fork from it, or start the server with a larger context (-c).'}
        {kind === 'lost' && message.content && ' What has come is kept; the answer goes on from there.'}
      </p>
      {button}
    </div>
  );
}

function LiveLine({ state }: { state: Live }) {
  const progress = state.progress.value;
  const isReading = state.phase.value === 'waiting' || state.phase.value === 'reading';
  if (isReading && progress && progress.total > 0) {
    return (
      <div class="live" role="status">
        <span>Reading the prompt: {count(progress.processed)} of {count(progress.total)} tokens
          {progress.cache > 0 && `, ${count(progress.cache)} from the cache`}</span>
        <div class="bar" aria-hidden="true">
          <span class="done" style={{ width: `${(progress.processed / progress.total) * 100}%` }} />
          <span class="kept" style={{ width: `${(progress.cache / progress.total) * 100}%` }} />
        </div>
      </div>
    );
  }
  if (isReading) return <div class="live" role="status">Waiting for the server…</div>;
  return (
    <div class="live">
      <span>{plural(state.nTokens.value, 'token')}</span>
      {state.rate.value > 0 && <span>{rate(state.rate.value)}</span>}
    </div>
  );
}

function Figures({ message }: { message: Message }) {
  const { timings, usage } = message;
  if (!timings) return null;
  const first = timings.queued_ms + timings.prompt_ms;
  const cached = timings.cache_n;
  return (
    <p class="figures">
      <span title="Tokens made each second">{rate(timings.predicted_per_second)}</span>
      <span title="Time to the first token">first after {seconds(first)}</span>
      <span>{plural(timings.predicted_n, 'token')}</span>
      <span title="Prompt tokens, and how many of them did not have to be read again">
        prompt {count(usage?.prompt_tokens ?? timings.prompt_n + cached)}{cached > 0 && `, ${count(cached)} cached`}
      </span>
      {message.model && <span>{message.model}</span>}
    </p>
  );
}

function Branches({ message, actions }: { message: Message; actions: AnswerActions }) {
  const list = actions.branches(message);
  if (list.length < 2) return null;
  const at = list.indexOf(message);
  const show = (other: Message) => stepTo(message.id, other.id, () => actions.show(other));
  return (
    <span class="branches" role="group" aria-label="Branches">
      <IconButton icon="left" label="Previous branch" disabled={at === 0} onClick={() => show(list[at - 1])} />
      <span>{at + 1} / {list.length}</span>
      <IconButton icon="right" label="Next branch" disabled={at === list.length - 1} onClick={() => show(list[at + 1])} />
    </span>
  );
}

const editOf = (message: Message) => `${message.id}:edit`; // where it is kept until it is sent

// Only Cancel throws away what was written.
function Editor({ message, isWanted, onDone }: { message: Message; isWanted: boolean; onDone: () => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const text = useSignal(keptText(editOf(message)) ?? message.content);
  useLayoutEffect(() => {
    if (isWanted) area.current!.focus();
  }, []);
  const cancel = () => {
    keepText(editOf(message), '');
    onDone();
  };
  const save = () => {
    cancel();
    if (text.value.trim()) editAndFork(message, text.value);
  };
  const write = (now: string) => {
    text.value = now;
    keepText(editOf(message), now === message.content ? '' : now);
  };
  return (
    <form class="editor" onSubmit={(event) => { event.preventDefault(); save(); }}>
      <textarea aria-label="Edit the message" rows={Math.min(12, text.value.split('\n').length + 1)} value={text.value}
                dir="auto" ref={area} onInput={(event) => write(event.currentTarget.value)}
                onKeyDown={(event) => {
                  if (event.key === 'Escape') {
                    event.preventDefault();
                    onDone();
                  }
                  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save();
                }} />
      <div>
        <button type="button" onClick={cancel}>Cancel</button>
        <button type="submit" class="main">Send as a branch</button>
      </div>
    </form>
  );
}

function Question({ message }: { message: Message }) {
  const isWanted = useSignal(false); // by a click, not since something was left there
  const isEditing = useSignal(keptText(editOf(message)) !== undefined);
  return (
    <>
      {message.attachments?.map((file) => (
        <details class="attachment" key={file.name}>
          <summary><Icon name="file" /> {file.name} <span class="faint">{plural(file.text.length, 'character')}</span></summary>
          <pre tabindex={0}>{file.text}</pre>
        </details>
      ))}
      {isEditing.value ? <Editor message={message} isWanted={isWanted.value} onDone={() => (isEditing.value = false)} />
                       : <div class="said" dir="auto">{message.content}</div>}
      <footer>
        <Branches message={message} actions={kInConversation} />
        <IconButton icon="edit" label="Edit" class="edit" onClick={() => (isWanted.value = isEditing.value = true)} />
        <IconButton icon="copy" label="Copy" onClick={() => void copyText(message.content)} />
      </footer>
    </>
  );
}

function Answer({ message, state, actions = kInConversation }: { message: Message; state?: Live; actions?: AnswerActions }) {
  const showsTokens = useSignal(false);
  const wasProbable = Boolean(message.hasTokens || message.tokens?.length);
  const thinks = Boolean(message.reasoning) || state?.phase.value === 'thinking';
  const isElsewhere = Boolean(message.writing) && !state;
  const isDone = !state && !isElsewhere;
  // Those of before there was a word on how it ended are taken for whole.
  const isAsked = isDone && !message.notice && (message.finish ?? 'tool_calls') === 'tool_calls' && actions === kInConversation;
  return (
    <>
      {thinks && <Reasoning message={message} state={state} />}
      {showsTokens.value && isDone && wasProbable
        ? <Probabilities message={message} take={(begin) => actions.take(message, begin)} />
        : <Prose message={message} field="content" state={state} />}
      {message.toolCalls?.map((call, i) => <CallCard key={call.id || i} message={message} call={call} isAsked={isAsked} place={`${message.id}:${i}`} />)}
      {state && <LiveLine state={state} />}
      {isElsewhere && <div class="live" role="status">Being written in another tab…</div>}
      {isDone && message.notice && <NoticeBar message={message} actions={actions} />}
      {isDone && (
        <footer>
          <Branches message={message} actions={actions} />
          <IconButton icon="copy" label="Copy" onClick={() => void copyText(message.content)} />
          <IconButton icon="again" label="Regenerate" onClick={() => actions.regenerate(message)} />
          {!message.notice && !message.toolCalls?.length && (
            <IconButton icon="go" label="Continue" onClick={() => actions.goOn(message)} />
          )}
          {(wasProbable || settings.value.probabilities) && (
            <IconButton icon="dice" label="Probabilities" pressed={showsTokens.value} disabled={!wasProbable}
                        onClick={() => (showsTokens.value = !showsTokens.value)} />
          )}
          <Figures message={message} />
        </footer>
      )}
    </>
  );
}

const kNames = { user: 'You', assistant: 'Answer', tool: 'Tool' };

// A message that cannot be drawn is shown as its text; the others are not touched by it.
class Guarded extends Component<{ text: string; children: ComponentChildren }, { error?: unknown }> {
  static getDerivedStateFromError(error: unknown) {
    return { error };
  }
  render() {
    if (!this.state.error) return this.props.children;
    return <div class="plain">{this.props.text}</div>;
  }
}

interface MessageProps {
  message: Message;
  isLast: boolean;
  version: unknown; // a new one draws anew
  actions?: AnswerActions;
}

export const MessageView = memo(function MessageView({ message, isLast, actions }: MessageProps) {
  const place = useRef<HTMLElement>(null);
  const state = live.value.get(message.id);
  const isNear = useSignal(isLast || Boolean(state));
  useEffect(() => {
    if (!isNear.value && place.current) return whenNear(place.current, () => (isNear.value = true));
  }, []);
  if (message.role === 'tool') return null; // shown in the card of its call
  return (
    <article ref={place} class={`message by-${message.role}`} aria-label={kNames[message.role]} aria-busy={Boolean(state)}
             data-id={message.id}>
      <Guarded text={message.content}>
        {!isNear.value ? <div class="plain">{message.content}</div>
          : message.role === 'user' ? <Question message={message} />
          : <Answer message={message} state={state} actions={actions} />}
      </Guarded>
    </article>
  );
});
