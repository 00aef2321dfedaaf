// pdfjs-dist has no types for this module.
declare module 'pdfjs-dist/build/pdf.worker.mjs' {
  export const WorkerMessageHandler: object;
}
