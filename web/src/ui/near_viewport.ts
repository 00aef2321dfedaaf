// Calls back when an element comes near the viewport, one per frame, so that fast scrolling never blocks.
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

// Last in, first out: the latest element is the one in view.
function drain(): void {
  const element = ready.pop();
  isRunning = element !== undefined;
  if (!element) return;
  observer.unobserve(element);
  waiting.get(element)?.();
  waiting.delete(element);
  setTimeout(drain);
}

export function whenNearViewport(element: Element, run: () => void): () => void {
  waiting.set(element, run);
  observer.observe(element);
  return () => {
    waiting.delete(element);
    observer.unobserve(element);
  };
}
