// Scroll position. The end stays in view while content grows if it was in view before; the button that switched the branch
// stays under the pointer while the branch renders.
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

const kAtEndPx = 80;
const kHoldFrames = 60; // frames within which a branch renders, even on a slow machine
const scroller = () => document.scrollingElement!;
export const isAtEnd = () => scroller().scrollHeight - scroller().scrollTop - innerHeight < kAtEndPx;
export const goToEnd = () => (scroller().scrollTop = scroller().scrollHeight);

// A message and its bottom edge in the viewport, where its buttons are. Its content cannot be measured while off screen,
// because it is not laid out then.
let held: { id: string; end: number } | null = null;
const endOf = (id: string) => document.querySelector(`[data-id="${CSS.escape(id)}"]`)?.getBoundingClientRect().bottom;

// Switches the branch with `show`; message `to` appears at the position of `from`.
export function switchBranch(from: string, to: string, show: () => void): void {
  const hold = { id: to, end: endOf(from) ?? 0 };
  held = hold;
  let nFramesLeft = kHoldFrames;
  const onFrame = () => {
    if (held !== hold) return;
    if (--nFramesLeft === 0) held = null;
    else requestAnimationFrame(onFrame);
  };
  requestAnimationFrame(onFrame);
  show();
}

// Whether a scroll position is being held.
export function restoreHeldPosition(): boolean {
  const end = held ? endOf(held.id) : undefined;
  if (end === undefined) return false;
  scroller().scrollTop += end - held!.end;
  return true;
}

// Only scrolling by the user stops following the end.
export function useFollowEnd(content: { current: HTMLElement | null }) {
  const isFollowing = useSignal(true);
  useEffect(() => {
    let lastTop = scroller().scrollTop;
    const onScroll = () => {
      const top = scroller().scrollTop;
      if (isAtEnd()) isFollowing.value = true;
      else if (top < lastTop - 2) isFollowing.value = false;
      lastTop = top;
    };
    const resizeObserver = new ResizeObserver(() => {
      if (!restoreHeldPosition() && isFollowing.value) goToEnd();
      lastTop = scroller().scrollTop;
    });
    const release = () => (held = null);
    resizeObserver.observe(content.current!);
    addEventListener('scroll', onScroll, { passive: true });
    for (const name of ['wheel', 'touchmove', 'keydown']) addEventListener(name, release, { passive: true });
    return () => {
      resizeObserver.disconnect();
      removeEventListener('scroll', onScroll);
      for (const name of ['wheel', 'touchmove', 'keydown']) removeEventListener(name, release);
    };
  }, []);
  return isFollowing;
}
