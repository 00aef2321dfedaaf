// Calls back when an element comes near the window, one at a time, so that scrolling fast never waits.
const kMargin = '1200px';

const waiting = new Map<Element, () => void>();
const ready: Element[] = [];
let isRunning = false;

const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) ready.push(entry.target);
    if (ready.length === 0 || isRunning) return;
    isRunning = true;
    setTimeout(drain);
  },
  { rootMargin: kMargin },
);

// The last that came is the one the reader is at.
function drain(): void {
  const element = ready.pop();
  isRunning = element !== undefined;
  if (!element) return;
  observer.unobserve(element);
  waiting.get(element)?.();
  waiting.delete(element);
  setTimeout(drain);
}

export function whenNear(element: Element, run: () => void): () => void {
  waiting.set(element, run);
  observer.observe(element);
  return () => {
    waiting.delete(element);
    observer.unobserve(element);
  };
}
