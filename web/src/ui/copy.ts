// Copies to the clipboard. The clipboard API needs a secure context (localhost or TLS); elsewhere a selection and
// execCommand are used.
import { showToast } from '../state';

function copyBySelection(text: string): boolean {
  const area = document.createElement('textarea');
  area.value = text;
  area.style.position = 'fixed';
  area.style.opacity = '0';
  const before = document.activeElement as HTMLElement | null;
  (document.querySelector('dialog[open]') ?? document.body).append(area); // text outside an open modal dialog cannot be selected
  area.select();
  const isDone = document.execCommand('copy');
  area.remove();
  before?.focus();
  return isDone;
}

export async function copyText(text: string): Promise<void> {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copyBySelection(text)) throw new Error();
    showToast('Copied');
  } catch {
    showToast('The browser does not allow this page to copy.');
  }
}
