// One message. Off screen it is cheap plain text; near the viewport it is rendered.
import { useSignal } from '@preact/signals';
import { Component, type ComponentChildren } from 'preact';
import { memo } from 'preact/compat';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import {
  continueAnswer, continuesWhenBack, editAndFork, addToolResult, live, regenerate, regenerateWith, branchWithAlternative, type StreamingAnswer,
} from '../answer';
import { setDraftText, draftText } from '../draft';
import { deleteMessage, editAnswer } from '../edit';
import { MarkdownView } from '../markdown';
import { modelChoices } from '../models';
import { isServerUnreachable, panel, path, settings, showBranch, siblings } from '../state';
import type { Message, ToolCall } from '../types';
import { copyText } from './copy';
import { switchBranch } from './scroll';
import { count, plural, rate, seconds } from './format';
import { Icon, IconButton } from './icon';
import { Menu } from './menu';
import { OverflowChoice } from './overflow';
import { whenNearViewport } from './near_viewport';
import { Probabilities } from './probability';

// Actions on an answer, provided by the view that contains it.
export interface AnswerActions {
  regenerate: (message: Message) => void;
  regenerateWith?: (message: Message, modelName: string) => void;
  continueAnswer: (message: Message) => void;
  branchWithAlternative: (message: Message, begin: Partial<Message>) => void;
  branches: (message: Message) => Message[]; // the message and its siblings
  show: (message: Message) => void; // switch to a sibling
}
const kConversationActions: AnswerActions = {
  regenerate, regenerateWith: (message, name) => void regenerateWith(message, name), continueAnswer, branchWithAlternative, branches: siblings,
  show: showBranch,
};

// The Markdown of a message, rendered while it streams.
function Prose({ message, field, state }: { message: Message; field: 'content' | 'reasoning'; state?: StreamingAnswer }) {
  const element = useRef<HTMLDivElement>(null);
  const view = useRef<MarkdownView | null>(null);
  useLayoutEffect(() => {
    view.current ??= new MarkdownView(element.current!);
    const render = () => view.current!.update(message[field] ?? '', false);
    if (!state) {
      view.current.update(message[field] ?? '', true);
      return;
    }
    render();
    state.views.add(render);
    return () => void state.views.delete(render);
  }, [message, state, state ? '' : message[field]]);
  return <div class="prose" ref={element} />;
}

function Reasoning({ message, state }: { message: Message; state?: StreamingAnswer }) {
  const isThinking = state?.phase.value === 'thinking';
  const tokens = message.reasoningTokens ?? 0;
  void state?.nTokens.value; // re-render while reasoning tokens arrive
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

// The tool results after a message, and whether more can be added (not after another message follows).
function resultsAfter(message: Message): { results: Message[]; isOpen: boolean } {
  const at = path.value.findIndex(({ id }) => id === message.id);
  const after = at < 0 ? [] : path.value.slice(at + 1);
  const end = after.findIndex(({ role }) => role !== 'tool');
  return { results: end < 0 ? after : after.slice(0, end), isOpen: end < 0 };
}

// `awaitsResult`: the call is complete and waits for its result. `resultKey`: draft key of the result.
function CallCard({ message, call, awaitsResult, resultKey }: { message: Message; call: ToolCall; awaitsResult: boolean; resultKey: string }) {
  const { results, isOpen } = resultsAfter(message);
  const answer = results.find(({ toolCallId }) => toolCallId === call.id);
  const text = useSignal(draftText(resultKey) ?? '');
  return (
    <section class="card" aria-label={`Call to ${call.name}`}>
      <header><Icon name="box" /> <strong>{call.name}</strong> <span class="faint">tool call</span></header>
      <pre tabindex={0}><code>{pretty(call.arguments)}</code></pre>
      {answer && <pre class="result" tabindex={0}><code>{answer.content}</code></pre>}
      {!answer && awaitsResult && isOpen && (
        <form onSubmit={(event) => { event.preventDefault(); setDraftText(resultKey, ''); addToolResult(call, text.value); }}>
          <textarea aria-label={`Result of ${call.name}`} placeholder="Tool result" rows={2} value={text.value} dir="auto"
                    onInput={(event) => { text.value = event.currentTarget.value; setDraftText(resultKey, text.value); }} />
          <button type="submit">Send result</button>
        </form>
      )}
    </section>
  );
}

// The end of a lost answer's notice.
function lostHint(message: Message): string {
  const kept = message.content || message.reasoning ? ' Your text is safe.' : '';
  return isServerUnreachable.value && continuesWhenBack(message) ? `${kept} The answer continues when the server is back.` : `${kept} Retry continues from here.`;
}

function NoticeBar({ message, actions }: { message: Message; actions: AnswerActions }) {
  const { kind, text } = message.notice!;
  const continueButton = <button type="button" onClick={() => actions.continueAnswer(message)}>Continue</button>;
  const regenerateButton = <button type="button" onClick={() => actions.regenerate(message)}>Regenerate</button>;
  const retryButton = <button type="button" onClick={() => actions.continueAnswer(message)}>Retry</button>;
  const buttons = {
    length: continueButton, context: null, stopped: continueButton, empty: regenerateButton, lost: retryButton, error: retryButton,
    model: <><button type="button" onClick={() => (panel.value = 'models')}>Choose a model</button>{retryButton}</>,
  };
  const canShorten = kind === 'context' && actions === kConversationActions;
  return (
    <div class={`notice is-${kind}`} role="status">
      <p>{text}{kind === 'lost' && lostHint(message)}{kind === 'context' && !canShorten && ' Shorten the prompt, or start the server with a larger context (zinc serve -c).'}</p>
      {canShorten ? <OverflowChoice isOver /> : buttons[kind]}
    </div>
  );
}

function StreamStatus({ state }: { state: StreamingAnswer }) {
  const progress = state.progress.value;
  const isPrefilling = state.phase.value === 'waiting' || state.phase.value === 'prefill';
  if (isPrefilling && progress && progress.total > 0) {
    return (
      <div class="live" role="status">
        <span>Processing the prompt: {count(progress.processed)} of {count(progress.total)} tokens
          {progress.cache > 0 && `, ${count(progress.cache)} from the cache`}</span>
        <div class="bar" aria-hidden="true">
          <span class="done" style={{ width: `${(progress.processed / progress.total) * 100}%` }} />
          <span class="cached" style={{ width: `${(progress.cache / progress.total) * 100}%` }} />
        </div>
      </div>
    );
  }
  if (isPrefilling) return <div class="live" role="status">Waiting for the server…</div>;
  return (
    <div class="live">
      <span>{plural(state.nTokens.value, 'token')}</span>
      {state.rate.value > 0 && <span>{rate(state.rate.value)}</span>}
    </div>
  );
}

function AnswerStats({ message }: { message: Message }) {
  const { timings, usage } = message;
  if (!timings) return null;
  const first = timings.queued_ms + timings.prompt_ms;
  const cached = timings.cache_n;
  return (
    <p class="figures">
      <span title="Tokens per second">{rate(timings.predicted_per_second)}</span>
      <span title="Time to the first token">first token after {seconds(first)}</span>
      <span>{plural(timings.predicted_n, 'token')}</span>
      <span title="Prompt tokens, and how many came from the prefix cache">
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
  const show = (other: Message) => switchBranch(message.id, other.id, () => actions.show(other));
  return (
    <span class="branches" role="group" aria-label="Branches">
      <IconButton icon="left" label="Previous branch" disabled={at === 0} onClick={() => show(list[at - 1])} />
      <span>{at + 1} / {list.length}</span>
      <IconButton icon="right" label="Next branch" disabled={at === list.length - 1} onClick={() => show(list[at + 1])} />
    </span>
  );
}

const editDraftKey = (message: Message) => `${message.id}:edit`; // draft key of the edit

// Only Cancel discards the edit. An edited question is sent again; an edited answer is saved in place.
function Editor({ message, wasClicked, onDone }: { message: Message; wasClicked: boolean; onDone: () => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const isQuestion = message.role === 'user';
  const text = useSignal(draftText(editDraftKey(message)) ?? message.content);
  useLayoutEffect(() => {
    if (wasClicked) area.current!.focus();
  }, []);
  const cancel = () => {
    setDraftText(editDraftKey(message), '');
    onDone();
  };
  const save = () => {
    cancel();
    if (!text.value.trim()) return;
    if (isQuestion) editAndFork(message, text.value);
    else void editAnswer(message, text.value);
  };
  const change = (next: string) => {
    text.value = next;
    setDraftText(editDraftKey(message), next === message.content ? '' : next);
  };
  return (
    <form class="editor" onSubmit={(event) => { event.preventDefault(); save(); }}>
      <textarea aria-label={isQuestion ? 'Edit the message' : 'Edit the answer'} rows={Math.min(12, text.value.split('\n').length + 1)} value={text.value}
                dir="auto" ref={area} onInput={(event) => change(event.currentTarget.value)}
                onKeyDown={(event) => {
                  if (event.key === 'Escape') {
                    event.preventDefault();
                    onDone();
                  }
                  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) save();
                }} />
      <div>
        <span class="hint">{isQuestion ? 'The old version stays as a branch.' : 'The model sees the changed answer.'}</span>
        <button type="button" onClick={cancel}>Cancel</button>
        <button type="submit" class="main">{isQuestion ? 'Send' : 'Save'}</button>
      </div>
    </form>
  );
}

// Whether a message is being edited, and whether a click, not an existing draft, opened the editor: only then it takes the focus.
function useEditor(message: Message) {
  const wasClicked = useSignal(false);
  const isEditing = useSignal(draftText(editDraftKey(message)) !== undefined);
  const editor = <Editor message={message} wasClicked={wasClicked.value} onDone={() => (isEditing.value = false)} />;
  return { isEditing, editor, open: () => (wasClicked.value = isEditing.value = true) };
}

function UserMessage({ message }: { message: Message }) {
  const { isEditing, editor, open } = useEditor(message);
  return (
    <>
      {message.attachments?.map((file) => (
        <details class="attachment" key={file.name}>
          <summary><Icon name="file" /> {file.name} <span class="faint">{plural(file.text.length, 'character')}</span></summary>
          <pre tabindex={0}>{file.text}</pre>
        </details>
      ))}
      {isEditing.value ? editor : <div class="said" dir="auto">{message.content}</div>}
      <footer>
        <Branches message={message} actions={kConversationActions} />
        <IconButton icon="edit" label="Edit" class="edit" onClick={open} />
        <IconButton icon="copy" label="Copy" onClick={() => void copyText(message.content)} />
        <IconButton icon="trash" label="Delete" onClick={() => void deleteMessage(message)} />
      </footer>
    </>
  );
}

// Models other than the one that answered.
function RegenerateWith({ message, choose }: { message: Message; choose: (message: Message, modelName: string) => void }) {
  const others = modelChoices().filter(({ name }) => name !== message.model);
  if (others.length === 0) return null;
  return (
    <Menu icon="down" label="Regenerate with another model" class="beside">
      {others.map(({ name, isLoaded }) => (
        <button type="button" key={name} onClick={() => choose(message, name)}>{name}{!isLoaded && <span class="faint"> loads first</span>}</button>
      ))}
    </Menu>
  );
}

function AnswerFooter({ message, actions, onEdit, tokens }: { message: Message; actions: AnswerActions; onEdit: () => void; tokens: { isShown: boolean; exist: boolean; toggle: () => void } }) {
  const isInConversation = actions === kConversationActions;
  return (
    <footer>
      <Branches message={message} actions={actions} />
      <IconButton icon="copy" label="Copy" onClick={() => void copyText(message.content)} />
      {isInConversation && <IconButton icon="edit" label="Edit the answer" onClick={onEdit} />}
      <IconButton icon="refresh" label="Regenerate" onClick={() => actions.regenerate(message)} />
      {actions.regenerateWith && <RegenerateWith message={message} choose={actions.regenerateWith} />}
      {message.edited && !message.notice && !message.toolCalls?.length && (
        <IconButton icon="forward" label="Continue" onClick={() => actions.continueAnswer(message)} />
      )}
      {isInConversation && <IconButton icon="trash" label="Delete" onClick={() => void deleteMessage(message)} />}
      {tokens.exist && (
        <button type="button" class="quiet labeled" aria-pressed={tokens.isShown} onClick={tokens.toggle}><Icon name="dice" /> Probabilities</button>
      )}
      <AnswerStats message={message} />
    </footer>
  );
}

function AssistantMessage({ message, state, actions = kConversationActions }: { message: Message; state?: StreamingAnswer; actions?: AnswerActions }) {
  const choice = useSignal<boolean | null>(null); // probabilities of this answer; null: as the conversation
  const { isEditing, editor, open } = useEditor(message);
  const wantsTokens = choice.value ?? Boolean(settings.value.probabilities);
  const hasTokens = Boolean(message.hasTokens || message.tokens?.length);
  const showsTokens = wantsTokens && (hasTokens || Boolean(state && message.tokens));
  const hasReasoning = Boolean(message.reasoning) || state?.phase.value === 'thinking';
  const isStreamingElsewhere = Boolean(message.writing) && !state;
  const isDone = !state && !isStreamingElsewhere;
  // Messages of older versions have no finish reason and count as complete.
  const awaitsResult = isDone && !message.notice && (message.finish ?? 'tool_calls') === 'tool_calls' && actions === kConversationActions;
  return (
    <>
      {hasReasoning && <Reasoning message={message} state={state} />}
      {isEditing.value && isDone ? editor
        : showsTokens ? <Probabilities message={message} state={state} onChoose={(begin) => actions.branchWithAlternative(message, begin)} />
        : <Prose message={message} field="content" state={state} />}
      {message.toolCalls?.map((call, i) => <CallCard key={call.id || i} message={message} call={call} awaitsResult={awaitsResult} resultKey={`${message.id}:${i}`} />)}
      {state && <StreamStatus state={state} />}
      {isStreamingElsewhere && <div class="live" role="status">Streaming in another tab…</div>}
      {isDone && message.notice && <NoticeBar message={message} actions={actions} />}
      {isDone && <AnswerFooter message={message} actions={actions} onEdit={open} tokens={{ isShown: showsTokens, exist: hasTokens, toggle: () => (choice.value = !showsTokens) }} />}
    </>
  );
}

const kLabels = { user: 'You', assistant: 'Answer', tool: 'Tool' };

// Error boundary: a message that fails to render is displayed as plain text.
class ErrorBoundary extends Component<{ text: string; children: ComponentChildren }, { error?: unknown }> {
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
  isLeftOut?: boolean; // not sent to the model
  version: unknown; // a change re-renders
  actions?: AnswerActions;
}

export const MessageView = memo(function MessageView({ message, isLast, isLeftOut, actions }: MessageProps) {
  const element = useRef<HTMLElement>(null);
  const state = live.value.get(message.id);
  const isNear = useSignal(isLast || Boolean(state));
  useEffect(() => {
    if (!isNear.value && element.current) return whenNearViewport(element.current, () => (isNear.value = true));
  }, []);
  if (message.role === 'tool') return null; // displayed in the card of its call
  return (
    <article ref={element} class={`message by-${message.role}${isLeftOut ? ' is-left-out' : ''}`} aria-label={kLabels[message.role]} aria-busy={Boolean(state)}
             data-id={message.id}>
      <ErrorBoundary text={message.content}>
        {!isNear.value ? <div class="plain">{message.content}</div>
          : message.role === 'user' ? <UserMessage message={message} />
          : <AssistantMessage message={message} state={state} actions={actions} />}
      </ErrorBoundary>
    </article>
  );
});
