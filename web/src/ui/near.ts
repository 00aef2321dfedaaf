// Calls back when an element comes near the window, a few per frame, so that scrolling fast never waits.
const kMargin = '1200px';
const kBudgetMs = 8;

const waiting = new Map<Element, () => void>();
const ready: Element[] = [];
let isRunning = false;

const observer = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) if (entry.isIntersecting) ready.push(entry.target);
    if (ready.length > 0 && !isRunning) {
      isRunning = true;
      requestAnimationFrame(drain);
    }
  },
  { rootMargin: kMargin },
);

function drain(): void {
  const begin = performance.now();
  while (ready.length > 0 && performance.now() - begin < kBudgetMs) {
    const element = ready.pop()!;
    observer.unobserve(element);
    waiting.get(element)?.();
    waiting.delete(element);
  }
  isRunning = ready.length > 0;
  if (isRunning) requestAnimationFrame(drain);
}

export function whenNear(element: Element, run: () => void): () => void {
  waiting.set(element, run);
  observer.observe(element);
  return () => {
    waiting.delete(element);
    observer.unobserve(element);
  };
}
