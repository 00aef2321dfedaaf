// A modal window; the browser keeps the focus in it and closes it with Escape.
import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { IconButton } from './icon';

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  class?: string;
  isFixed?: boolean; // cannot be closed without an answer
}

export function Dialog({ title, onClose, children, class: name = '', isFixed }: DialogProps) {
  const place = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useLayoutEffect(() => {
    const dialog = place.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus();
    };
  }, []);
  return (
    <dialog ref={place} class={name} aria-labelledby={titleId}
            onKeyDown={(event) => { if (isFixed && event.key === 'Escape') event.preventDefault(); }}
            onClose={() => { if (isFixed) place.current?.showModal(); }} // a second Escape is not asked about
            onCancel={(event) => { event.preventDefault(); if (!isFixed) onClose(); }}
            onClick={(event) => { if (event.target === place.current && !isFixed) onClose(); }}>
      <div class="sheet">
        <header>
          <h2 id={titleId} tabindex={-1} autofocus>{title}</h2>
          {!isFixed && <IconButton icon="close" label="Close" onClick={onClose} />}
        </header>
        {children}
      </div>
    </dialog>
  );
}
