// The conversation that is open. Follows the answer while the reader is at its end, and stays put when they are not.
import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { messages, model, openId, path, props, serverIsGone, setDraft } from '../state';
import { Dialog } from './dialog';
import { Icon } from './icon';
import { copyText, MessageView } from './message';

const kAtEndPx = 80;
const scroller = () => document.scrollingElement!;
const isAtEnd = () => scroller().scrollHeight - scroller().scrollTop - innerHeight < kAtEndPx;

// Keeps the end in view while things grow, as long as it was in view before. Only a person's own scrolling changes that.
function useFollowing(place: { current: HTMLElement | null }) {
  const isFollowing = useSignal(true);
  useEffect(() => {
    let lastTop = scroller().scrollTop;
    const scrolled = () => {
      const top = scroller().scrollTop;
      if (isAtEnd()) isFollowing.value = true;
      else if (top < lastTop - 2) isFollowing.value = false;
      lastTop = top;
    };
    const grown = new ResizeObserver(() => {
      if (isFollowing.value) scroller().scrollTop = scroller().scrollHeight;
      lastTop = scroller().scrollTop;
    });
    grown.observe(place.current!);
    addEventListener('scroll', scrolled, { passive: true });
    return () => {
      grown.disconnect();
      removeEventListener('scroll', scrolled);
    };
  }, []);
  return isFollowing;
}

const kIdeas = [
  'Explain how a hash table works, with a small example.',
  'Write a shell one-liner that finds the ten largest files.',
  'Draft a friendly reminder about an unpaid invoice.',
];

function Welcome() {
  return (
    <div class="welcome">
      <h1>What is on your mind?</h1>
      <p>
        {model.value ? <>You are talking to <strong>{model.value.name}</strong>, on this machine. Nothing you write leaves it.</>
          : serverIsGone.value ? 'The server cannot be reached.'
          : props.value ? 'No model is loaded.' : 'Connecting…'}
      </p>
      <ul>
        {kIdeas.map((idea) => (
          <li key={idea}>
            <button type="button" onClick={() => { setDraft({ text: idea }); document.getElementById('prompt')?.focus(); }}>{idea}</button>
          </li>
        ))}
      </ul>
    </div>
  );
}

// A link may carry away in its address what was said here: one that has something to carry is shown before it opens.
function useLinkCare() {
  const asked = useSignal<string | null>(null);
  const care = (event: MouseEvent) => {
    const target = event.target as HTMLElement;
    const link = target.closest<HTMLAnchorElement>('.prose a[href]');
    if (link) {
      const url = new URL(link.href);
      if (!url.search && !url.hash && url.pathname.length < 120) return;
      event.preventDefault();
      asked.value = link.href;
      return;
    }
    const button = target.closest<HTMLButtonElement>('.prose button[data-act]');
    const code = button?.closest('figure')?.querySelector('pre');
    if (!button || !code) return;
    if (button.dataset.act === 'copy') void copyText(code.textContent ?? '');
    else button.setAttribute('aria-pressed', String(code.classList.toggle('is-wrapped')));
  };
  return { asked, care };
}

export function Thread() {
  const place = useRef<HTMLDivElement>(null);
  const isFollowing = useFollowing(place);
  const { asked, care } = useLinkCare();
  const list = path.value;
  useLayoutEffect(() => {
    isFollowing.value = true;
    scroller().scrollTop = scroller().scrollHeight;
  }, [openId.value, list.length]);
  const kNearEnd = 4;
  return (
    <main id="thread" tabindex={-1} onClick={care}>
      <div ref={place} class="messages">
        {list.length === 0 && <Welcome />}
        {list.map((message, i) => (
          <MessageView key={message.id} message={message} isLast={i >= list.length - kNearEnd} version={messages.value} />
        ))}
      </div>
      {!isFollowing.value && (
        <button type="button" class="to-end" aria-label="Jump to the end" title="Jump to the end"
                onClick={() => { isFollowing.value = true; scroller().scrollTop = scroller().scrollHeight; }}>
          <Icon name="down" />
        </button>
      )}
      {asked.value && (
        <Dialog title="Open this link?" onClose={() => (asked.value = null)}>
          <p>The model wrote this address. What stands in it goes to that site.</p>
          <p class="address">{asked.value}</p>
          <div class="actions">
            <button type="button" onClick={() => (asked.value = null)}>Cancel</button>
            <button type="button" class="main" onClick={() => { open(asked.value!, '_blank', 'noopener,noreferrer'); asked.value = null; }}>Open</button>
          </div>
        </Dialog>
      )}
    </main>
  );
}
