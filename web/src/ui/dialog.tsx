// A modal dialog; the browser traps the focus and closes it on Escape.
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { IconButton } from './icon';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  head?: ComponentChildren; // stays in view below the title
  class?: string;
  isFixed?: boolean; // cannot be dismissed
}

export function Dialog({ title, onClose, children, head, class: name = '', isFixed }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useLayoutEffect(() => {
    const dialog = element.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus();
    };
  }, []);
  return (
    <dialog ref={element} class={name} aria-labelledby={titleId}
            onKeyDown={(event) => { if (isFixed && event.key === 'Escape') event.preventDefault(); }}
            onClose={() => { if (isFixed) element.current?.showModal(); }} // a second Escape fires no cancel event
            onCancel={(event) => { event.preventDefault(); if (!isFixed) onClose(); }}
            onClick={(event) => { if (event.target === element.current && !isFixed) onClose(); }}>
      <div class="sheet">
        <header>
          <div class="top">
            <h2 id={titleId} tabindex={-1} autofocus>{title}</h2>
            {!isFixed && <IconButton icon="close" label="Close" onClick={onClose} />}
          </div>
          {head}
        </header>
        {children}
      </div>
    </dialog>
  );
}
