// The choices when a conversation exceeds the context or comes near it.
import { continueWithSummary, cancelSummary, leaveOutOldest, overflowError, overflowProgress, sendAllAgain } from '../overflow';
import { conversation, openConversation } from '../state';

export function OverflowChoice() {
  if (overflowProgress.value) {
    return (
      <div class="choices">
        <span role="status">{overflowProgress.value}</span>
        <button type="button" onClick={cancelSummary}>Cancel</button>
      </div>
    );
  }
  return (
    <div class="choices">
      {overflowError.value && <span class="wrong" role="alert">{overflowError.value}</span>}
      <button type="button" title="They stay visible here, but the model does not get them" onClick={() => void leaveOutOldest()}>Leave out the oldest messages</button>
      <button type="button" title="The model summarizes the oldest messages; the summary is sent instead" onClick={() => void continueWithSummary()}>Continue with a summary</button>
      <button type="button" onClick={() => void openConversation(null)}>New conversation</button>
    </div>
  );
}

// Above the first message that is sent.
export function CutLine() {
  const summary = conversation.value?.context?.summary;
  return (
    <div class="cut" role="note">
      <p>The messages above are no longer sent to the model{summary ? '; this summary is sent instead.' : '.'} <button type="button" onClick={sendAllAgain}>Send them again</button></p>
      {summary && <details><summary>Summary</summary><p>{summary}</p></details>}
    </div>
  );
}
