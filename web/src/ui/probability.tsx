// An answer with one tint per token: the less likely, the warmer. A click lists the alternatives; choosing one starts a
// branch that continues from it.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { alternative, tokenOffsets, withRest } from '../answer';
import { tokensOf } from '../db';
import type { Message, TokenChoice } from '../types';

const percent = (p: number) => (p >= 0.9995 ? '100%' : p < 0.001 ? '<0.1%' : `${(p * 100).toFixed(p < 0.1 ? 1 : 0)}%`);
const visible = (text: string) => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ | $/g, '␣') || '∅';
// Ten levels, finer at low probability.
const shade = (p: number) => Math.min(9, Math.floor(p * 10));

export function Probabilities({ message, onChoose }: { message: Message; onChoose: (begin: Partial<Message>) => void }) {
  const selected = useSignal(-1);
  const loaded = useSignal<TokenChoice[]>(message.tokens ?? []);
  useEffect(() => {
    if (message.tokens) loaded.value = message.tokens;
    else void tokensOf(message.id).then((list) => (loaded.value = list));
  }, [message]);
  const tokens = withRest(message.content, loaded.value);
  const offsets = tokenOffsets(message.content, tokens);
  const token = tokens[selected.value];
  const step = (by: number) => {
    let next = selected.value + by;
    while (offsets[next] === -1) next += by;
    if (next >= 0 && next < tokens.length) selected.value = next;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  };
  return (
    <div class="tokens">
      <div class="text" role="listbox" aria-label="Tokens of the answer" tabindex={0} onKeyDown={onKeyDown}
           aria-activedescendant={selected.value < 0 ? undefined : `token-${message.id}-${selected.value}`}>
        {tokens.map((entry, i) =>
          offsets[i] < 0 ? null : (
            <span key={i} id={`token-${message.id}-${i}`} role="option" class={`token p${shade(entry.p)}`} aria-selected={selected.value === i}
                  title={percent(entry.p)} onClick={() => (selected.value = selected.value === i ? -1 : i)}>
              {entry.text}
            </span>
          ),
        )}
      </div>
      {token && (
        <div class="alternatives" role="group" aria-label={`Instead of ${visible(token.text)}`}>
          <p><code>{visible(token.text)}</code> had probability {percent(token.p)}. Choose an alternative to continue from it:</p>
          <ul>
            {token.top.map((other) => (
              <li key={other.text}>
                <button type="button" disabled={other.text === token.text || !other.text}
                        onClick={() => onChoose(alternative(message, tokens, selected.value, other.text))}>
                  <code>{visible(other.text)}</code>
                  <meter min={0} max={1} value={other.p} aria-label={percent(other.p)} />
                  <span>{percent(other.p)}</span>
                </button>
              </li>
            ))}
          </ul>
          {token.top.length === 0 && <p>No alternatives recorded.</p>}
        </div>
      )}
      <p class="key"><span class="token p9">likely</span> <span class="token p5">uncertain</span> <span class="token p1">unlikely</span></p>
    </div>
  );
}
