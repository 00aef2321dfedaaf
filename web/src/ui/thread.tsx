// The conversation that is open.
import { useLayoutEffect, useRef } from 'preact/hooks';
import { live } from '../answer';
import { draft, setDraft } from '../draft';
import { messages, model, openId, path, props, serverIsGone } from '../state';
import { goToEnd, isAtEnd, keepHeld, useFollowing } from './follow';
import { Icon } from './icon';
import { MessageView } from './message';

const kIdeas = [
  'Explain how a hash table works, with a small example.',
  'Write a shell one-liner that finds the ten largest files.',
  'Draft a friendly reminder about an unpaid invoice.',
];

const isHere = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname);

function Welcome() {
  return (
    <div class="welcome">
      <h1>What is on your mind?</h1>
      <p>
        {model.value ? <>You are talking to <strong>{model.value.name}</strong>, on {isHere ? 'this machine. Nothing you write leaves it.' : `${location.hostname}. Nothing you write goes anywhere else.`}</>
          : serverIsGone.value ? 'The server cannot be reached.'
          : props.value ? 'No model is loaded.' : 'Connecting…'}
      </p>
      <ul>
        {kIdeas.map((idea) => (
          <li key={idea}>
            <button type="button" onClick={() => { setDraft({ text: draft.value.text.trim() ? `${draft.value.text.trimEnd()}\n${idea}` : idea }); document.getElementById('prompt')?.focus(); }}>{idea}</button>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Thread() {
  const place = useRef<HTMLDivElement>(null);
  const isFollowing = useFollowing(place);
  const list = path.value;
  const toEnd = () => {
    isFollowing.value = true;
    goToEnd();
  };
  // What was opened or just asked is gone to; a branch that was only stepped to is read from where the reader is.
  const opened = useRef<string | null>(null);
  useLayoutEffect(() => {
    const isOther = opened.current !== openId.value;
    opened.current = openId.value;
    if (isOther || list.some((message) => live.peek().has(message.id))) return toEnd();
    keepHeld();
    isFollowing.value = isAtEnd();
  }, [openId.value, list.at(-1)?.id]);
  const kNearEnd = 4;
  return (
    <main id="thread" tabindex={-1}>
      <div ref={place} class="messages">
        {list.length === 0 && <Welcome />}
        {list.map((message, i) => (
          <MessageView key={message.id} message={message} isLast={i >= list.length - kNearEnd} version={messages.value} />
        ))}
      </div>
      {!isFollowing.value && (
        <button type="button" class="to-end" aria-label="Jump to the end" title="Jump to the end"
                onClick={toEnd}>
          <Icon name="down" />
        </button>
      )}
    </main>
  );
}
