// Where the reader is. The end is kept in view while things grow, as long as it was in view before; what was pressed to
// step to another branch stays under the finger while that branch is drawn.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

const kAtEndPx = 80;
const kHoldFrames = 60; // in which a branch is drawn, however long a slow machine takes for them
const scroller = () => document.scrollingElement!;
export const isAtEnd = () => scroller().scrollHeight - scroller().scrollTop - innerHeight < kAtEndPx;
export const goToEnd = () => (scroller().scrollTop = scroller().scrollHeight);

// A message, and where in the window it ends: there its buttons are. Of what is inside it nothing can be asked while it
// is outside of the window, as it is not laid out then.
let held: { id: string; end: number } | null = null;
const endOf = (id: string) => document.querySelector(`[data-id="${CSS.escape(id)}"]`)?.getBoundingClientRect().bottom;

// Shows another branch by `show`; the message `to` takes the place of `from` in the window.
export function stepTo(from: string, to: string, show: () => void): void {
  const hold = { id: to, end: endOf(from) ?? 0 };
  held = hold;
  let nLeft = kHoldFrames;
  const drawn = () => {
    if (held !== hold) return;
    if (--nLeft === 0) held = null;
    else requestAnimationFrame(drawn);
  };
  requestAnimationFrame(drawn);
  show();
}

// Whether something is held where it was.
export function keepHeld(): boolean {
  const end = held ? endOf(held.id) : undefined;
  if (end === undefined) return false;
  scroller().scrollTop += end - held!.end;
  return true;
}

// Only a person's own scrolling ends the following.
export function useFollowing(place: { current: HTMLElement | null }) {
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
      if (!keepHeld() && isFollowing.value) goToEnd();
      lastTop = scroller().scrollTop;
    });
    const moved = () => (held = null);
    grown.observe(place.current!);
    addEventListener('scroll', scrolled, { passive: true });
    for (const name of ['wheel', 'touchmove', 'keydown']) addEventListener(name, moved, { passive: true });
    return () => {
      grown.disconnect();
      removeEventListener('scroll', scrolled);
      for (const name of ['wheel', 'touchmove', 'keydown']) removeEventListener(name, moved);
    };
  }, []);
  return isFollowing;
}
