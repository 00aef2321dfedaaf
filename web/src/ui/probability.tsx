// An answer with one tint per token, also while it streams: the less likely, the warmer. A click lists the alternatives; choosing
// one starts a branch that continues from it.
import { signal, useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { alternative, withRest, type StreamingAnswer } from '../answer';
import { tokensOf } from '../db';
import { saveSmall } from '../persist';
import type { Message, TokenChoice } from '../types';

const percent = (p: number) => (p >= 0.9995 ? '100%' : p < 0.001 ? '<0.1%' : `${(p * 100).toFixed(p < 0.1 ? 1 : 0)}%`);
const visible = (text: string) => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ | $/g, '␣') || '∅';
// Ten levels, finer at low probability.
const shade = (p: number) => Math.min(9, Math.floor(p * 10));

const kSliceMs = 8;

// The tokens as spans. Only new tokens are rendered when the answer grows; many at once take several slices. Lines are blocks,
// so that a new token lays out its own line only.
class TokenList {
  private nTokens = 0; // displayed or skipped
  private at = 0; // characters displayed
  private line: HTMLElement | null = null;
  private rest: HTMLElement | null = null; // text without probabilities
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly root: HTMLElement,
    private readonly idOf: (index: number) => string,
  ) {}

  update(content: string, tokens: TokenChoice[], isComplete: boolean): void {
    clearTimeout(this.timer);
    this.rest?.remove();
    const until = performance.now() + kSliceMs;
    while (this.nTokens < tokens.length) {
      if (performance.now() > until) {
        this.timer = setTimeout(() => this.update(content, tokens, isComplete));
        return;
      }
      const token = tokens[this.nTokens];
      const text = this.textOf(token, content);
      // A character that the server still holds back may complete it.
      if (text === null && !isComplete && token.text.startsWith(content.slice(this.at))) break;
      if (text !== null) this.append(this.nTokens, token, text);
      ++this.nTokens;
    }
    if (this.at < content.length) this.rest = this.append(this.nTokens, { text: '', p: 1, top: [] }, content.slice(this.at), false);
  }

  stop(): void {
    clearTimeout(this.timer);
  }

  // The part of the content that the token is; null: none, such as the end-of-thinking marker.
  private textOf({ text }: TokenChoice, content: string): string | null {
    const shown = this.at === 0 && !content.startsWith(text) ? text.trimStart() : text;
    return shown && content.startsWith(shown, this.at) ? shown : null;
  }

  private append(index: number, { p }: TokenChoice, text: string, counts = true): HTMLElement {
    const span = document.createElement('span');
    span.id = this.idOf(index);
    span.className = `token p${shade(p)}`;
    span.title = percent(p);
    span.dataset.index = String(index);
    span.setAttribute('role', 'option');
    span.setAttribute('aria-selected', 'false');
    span.textContent = text;
    if (!this.line) {
      this.line = document.createElement('div');
      this.line.setAttribute('role', 'presentation');
      this.root.append(this.line);
    }
    this.line.append(span);
    if (counts) {
      this.at += text.length;
      if (text.endsWith('\n')) this.line = null;
    }
    return span;
  }
}

function Alternatives({ message, tokens, index, onChoose }: { message: Message; tokens: TokenChoice[]; index: number; onChoose: (begin: Partial<Message>) => void }) {
  const token = tokens[index];
  return (
    <div class="alternatives" role="group" aria-label={`Instead of ${visible(token.text)}`}>
      <p><code>{visible(token.text)}</code> had probability {percent(token.p)}. Choose an alternative to continue from it:</p>
      <ul>
        {token.top.map((other) => (
          <li key={other.text}>
            <button type="button" disabled={other.text === token.text || !other.text}
                    onClick={() => onChoose(alternative(message, tokens, index, other.text))}>
              <code>{visible(other.text)}</code>
              <meter min={0} max={1} value={other.p} aria-label={percent(other.p)} />
              <span>{percent(other.p)}</span>
            </button>
          </li>
        ))}
      </ul>
      {token.top.length === 0 && <p>No alternatives recorded.</p>}
    </div>
  );
}

const kHintName = 'zinc.hint.probabilities';
const wasHintRead = signal(localStorage.getItem(kHintName) === '1');
function Hint() {
  if (wasHintRead.value) return null;
  const dismiss = () => {
    wasHintRead.value = true;
    saveSmall(kHintName, '1');
  };
  return (
    <p class="first-time" role="note">
      <span>The warmer the color, the less sure the model was. Click a word to see what else it considered, and to continue from there.</span>
      <button type="button" onClick={dismiss}>Got it</button>
    </p>
  );
}

interface ProbabilitiesProps {
  message: Message;
  state?: StreamingAnswer;
  onChoose: (begin: Partial<Message>) => void;
}

export function Probabilities({ message, state, onChoose }: ProbabilitiesProps) {
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<TokenList | null>(null);
  const selected = useSignal(-1);
  const loaded = useSignal<TokenChoice[] | null>(null);
  const tokens = () => message.tokens ?? loaded.value ?? [];
  useEffect(() => {
    if (!message.tokens && message.hasTokens) void tokensOf(message.id).then((found) => (loaded.value = found));
  }, [message]);
  useLayoutEffect(() => {
    list.current ??= new TokenList(box.current!, (index) => `token-${message.id}-${index}`);
    if (!message.tokens && !loaded.value) return; // still being read
    const render = () => list.current!.update(message.content, tokens(), !state);
    render();
    if (!state) return;
    state.views.add(render);
    return () => void state.views.delete(render);
  }, [message, state, loaded.value, state ? '' : message.content]);
  useEffect(() => () => list.current?.stop(), []);
  const elementAt = (index: number) => box.current?.querySelector<HTMLElement>(`[data-index="${index}"]`);
  const select = (index: number) => {
    elementAt(selected.value)?.setAttribute('aria-selected', 'false');
    selected.value = index === selected.value ? -1 : index;
    elementAt(selected.value)?.setAttribute('aria-selected', 'true');
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    let next = selected.value + by;
    while (next >= 0 && next <= tokens().length && !elementAt(next)) next += by; // skips tokens outside the content
    if (elementAt(next)) select(next);
  };
  const all = state ? [] : withRest(message.content, tokens());
  return (
    <div class="tokens">
      <Hint />
      <div class="text" role="listbox" aria-label="Tokens of the answer" tabindex={0} onKeyDown={onKeyDown} ref={box}
           aria-activedescendant={selected.value < 0 ? undefined : `token-${message.id}-${selected.value}`}
           onClick={(event) => {
             const token = (event.target as Element).closest<HTMLElement>('.token');
             if (token) select(Number(token.dataset.index));
           }} />
      {all[selected.value] && <Alternatives message={message} tokens={all} index={selected.value} onChoose={onChoose} />}
      <p class="key"><span class="token p9">likely</span> <span class="token p5">uncertain</span> <span class="token p1">unlikely</span></p>
    </div>
  );
}
