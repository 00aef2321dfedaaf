// The open conversation.
import { Fragment } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { live } from '../answer';
import { draft, setDraft } from '../draft';
import { loadingName } from '../models';
import { conversation, messages, model, openId, panel, path, props, isServerUnreachable } from '../state';
import { goToEnd, isAtEnd, restoreHeldPosition, useFollowEnd } from './scroll';
import { Icon } from './icon';
import { MessageView } from './message';
import { CutLine } from './overflow';

const kExamplePrompts = [
  'Explain how a hash table works, with a small example.',
  'Write a shell one-liner that finds the ten largest files.',
  'Draft a friendly reminder about an unpaid invoice.',
];

const isLocal = ['localhost', '127.0.0.1', '[::1]'].includes(location.hostname);

function Welcome() {
  return (
    <div class="welcome">
      <h1>What is on your mind?</h1>
      <p>
        {model.value ? <>You are talking to <strong>{model.value.name}</strong>, on {isLocal ? 'this machine. Nothing you write leaves it.' : `${location.hostname}. Nothing you write goes anywhere else.`}</>
          : isServerUnreachable.value ? 'The server cannot be reached. Your conversations can be read meanwhile.'
          : loadingName() ? `Loading ${loadingName()}…`
          : props.value ? <>No model is loaded. <button type="button" onClick={() => (panel.value = 'models')}>Choose a model</button></>
          : 'Connecting…'}
      </p>
      <ul>
        {kExamplePrompts.map((example) => (
          <li key={example}>
            <button type="button" onClick={() => { setDraft({ text: draft.value.text.trim() ? `${draft.value.text.trimEnd()}\n${example}` : example }); document.getElementById('prompt')?.focus(); }}>{example}</button>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Thread() {
  const element = useRef<HTMLDivElement>(null);
  const isFollowing = useFollowEnd(element);
  const list = path.value;
  const scrollToEnd = () => {
    isFollowing.value = true;
    goToEnd();
  };
  // Scrolls to a newly opened conversation or sent message, but not when only the branch changes.
  const opened = useRef<string | null>(null);
  useLayoutEffect(() => {
    const isOther = opened.current !== openId.value;
    opened.current = openId.value;
    if (isOther || list.some((message) => live.peek().has(message.id))) return scrollToEnd();
    restoreHeldPosition();
    isFollowing.value = isAtEnd();
  }, [openId.value, list.at(-1)?.id]);
  const kNearEnd = 4;
  const firstSent = list.findIndex(({ id }) => id === conversation.value?.context?.from);
  return (
    <main id="thread" tabindex={-1}>
      <div ref={element} class="messages">
        {list.length === 0 && <Welcome />}
        {list.map((message, i) => (
          <Fragment key={message.id}>
            {i > 0 && i === firstSent && <CutLine />}
            <MessageView message={message} isLast={i >= list.length - kNearEnd} isLeftOut={i < firstSent} version={messages.value} />
          </Fragment>
        ))}
      </div>
      {!isFollowing.value && (
        <button type="button" class="to-end" aria-label="Jump to the end" title="Jump to the end"
                onClick={scrollToEnd}>
          <Icon name="down" />
        </button>
      )}
    </main>
  );
}
