// An answer token by token: the less likely, the warmer. A token opens what the model might have said instead; taking
// that makes a branch which goes on from there.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { alternative, tokenOffsets, withRest } from '../answer';
import { tokensOf } from '../db';
import type { Message, TokenChoice } from '../types';

const percent = (p: number) => (p >= 0.9995 ? '100%' : p < 0.001 ? '<0.1%' : `${(p * 100).toFixed(p < 0.1 ? 1 : 0)}%`);
const visible = (text: string) => text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ | $/g, '␣') || '∅';
// Ten steps, finer where it is uncertain.
const shade = (p: number) => Math.min(9, Math.floor(p * 10));

export function Probabilities({ message, take }: { message: Message; take: (begin: Partial<Message>) => void }) {
  const open = useSignal(-1);
  const known = useSignal<TokenChoice[]>(message.tokens ?? []);
  useEffect(() => {
    if (message.tokens) known.value = message.tokens;
    else void tokensOf(message.id).then((list) => (known.value = list));
  }, [message]);
  const tokens = withRest(message.content, known.value);
  const offsets = tokenOffsets(message.content, tokens);
  const token = tokens[open.value];
  const step = (by: number) => {
    let next = open.value + by;
    while (offsets[next] === -1) next += by;
    if (next >= 0 && next < tokens.length) open.value = next;
  };
  const press = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  };
  return (
    <div class="tokens">
      <div class="text" role="listbox" aria-label="Tokens of the answer" tabindex={0} onKeyDown={press}
           aria-activedescendant={open.value < 0 ? undefined : `token-${message.id}-${open.value}`}>
        {tokens.map((entry, i) =>
          offsets[i] < 0 ? null : (
            <span key={i} id={`token-${message.id}-${i}`} role="option" class={`token p${shade(entry.p)}`} aria-selected={open.value === i}
                  title={percent(entry.p)} onClick={() => (open.value = open.value === i ? -1 : i)}>
              {entry.text}
            </span>
          ),
        )}
      </div>
      {token && (
        <div class="alternatives" role="group" aria-label={`Instead of ${visible(token.text)}`}>
          <p><code>{visible(token.text)}</code> had {percent(token.p)}. Take another and go on from there:</p>
          <ul>
            {token.top.map((other) => (
              <li key={other.text}>
                <button type="button" disabled={other.text === token.text || !other.text}
                        onClick={() => take(alternative(message, tokens, open.value, other.text))}>
                  <code>{visible(other.text)}</code>
                  <meter min={0} max={1} value={other.p} aria-label={percent(other.p)} />
                  <span>{percent(other.p)}</span>
                </button>
              </li>
            ))}
          </ul>
          {token.top.length === 0 && <p>No alternatives are known here.</p>}
        </div>
      )}
      <p class="key"><span class="token p9">likely</span> <span class="token p5">unsure</span> <span class="token p1">surprising</span></p>
    </div>
  );
}
