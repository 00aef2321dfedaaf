// Links in model output. A link's address can leak the conversation through its query, path or host name. So no click, key
// or drag opens a link before its address was shown.
import { useSignal } from '@preact/signals';
import { useLayoutEffect } from 'preact/hooks';
import { copyText } from './copy';
import { Dialog } from './dialog';

function pressCodeButton(button: HTMLElement): void {
  const code = button.closest('figure')?.querySelector('pre');
  if (!code) return;
  if (button.dataset.act === 'copy') void copyText(code.textContent ?? '');
  else button.setAttribute('aria-pressed', String(code.classList.toggle('is-wrapped')));
}

export function LinkGuard() {
  const requested = useSignal<URL | null>(null);
  useLayoutEffect(() => {
    const click = (event: MouseEvent) => {
      const target = event.target as Element;
      const link = target.closest<HTMLAnchorElement>('.prose a[href]');
      if (link) {
        event.preventDefault();
        requested.value = new URL(link.href);
        return;
      }
      const button = target.closest<HTMLElement>('.prose button[data-act]');
      if (button && event.type === 'click') pressCodeButton(button);
    };
    document.addEventListener('click', click);
    document.addEventListener('auxclick', click);
    // A link dropped on another window opens there.
    const drag = (event: DragEvent) => {
      if ((event.target as Element).closest?.('.prose a[href]')) event.preventDefault();
    };
    document.addEventListener('dragstart', drag);
    return () => {
      document.removeEventListener('click', click);
      document.removeEventListener('auxclick', click);
      document.removeEventListener('dragstart', drag);
    };
  }, []);
  if (!requested.value) return null;
  const { href, host, pathname } = requested.value;
  const name = host || pathname; // mailto has no host
  const [before, after] = [href.slice(0, href.indexOf(name)), href.slice(href.indexOf(name) + name.length)];
  const close = () => (requested.value = null);
  return (
    <Dialog title="Open this link?" onClose={close}>
      <p>The model wrote this address. Opening it sends everything in the address to that site.</p>
      <p class="address">{before}<strong>{name}</strong>{after}</p>
      <div class="actions">
        <button type="button" onClick={() => void copyText(href)}>Copy</button>
        <button type="button" onClick={close}>Cancel</button>
        <button type="button" class="main" onClick={() => { open(href, '_blank', 'noopener,noreferrer'); close(); }}>Open</button>
      </div>
    </Dialog>
  );
}
