// Into the clipboard. Browsers give a page its clipboard only where it came from this machine or over TLS; elsewhere a
// selection has to do.
import { say } from '../state';

function copyBySelection(text: string): boolean {
  const area = document.createElement('textarea');
  area.value = text;
  area.style.position = 'fixed';
  area.style.opacity = '0';
  const before = document.activeElement as HTMLElement | null;
  (document.querySelector('dialog[open]') ?? document.body).append(area); // what is outside of an open window cannot be selected
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
    say('Copied');
  } catch {
    say('The browser does not let this page copy.');
  }
}
