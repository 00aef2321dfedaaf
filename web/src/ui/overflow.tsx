// The choices when a conversation exceeds the context or comes near it.
import { continueWithSummary, cancelSummary, kAloneTooLong, leaveOutOldest, overflowError, overflowProgress, sendAllAgain } from '../overflow';
import { conversation, openConversation, path } from '../state';

// The first message cannot be shortened by leaving out others.
const isFirst = () => path.value.filter(({ role }) => role === 'user').length < 2;

export function OverflowChoice({ isOver }: { isOver?: boolean }) {
  if (overflowProgress.value) {
    return (
      <div class="choices">
        <span role="status">{overflowProgress.value}</span>
        <button type="button" onClick={cancelSummary}>Cancel</button>
      </div>
    );
  }
  const newConversation = <button type="button" onClick={() => void openConversation(null)}>New conversation</button>;
  if (isFirst()) return <div class="choices">{isOver && <span class="wrong">{kAloneTooLong}</span>}{newConversation}</div>;
  return (
    <div class="choices">
      {overflowError.value && <span class="wrong" role="alert">{overflowError.value}</span>}
      <button type="button" title="They stay visible here, but the model does not get them" onClick={() => void leaveOutOldest()}>Leave out the oldest messages</button>
      <button type="button" title="The model summarizes the oldest messages; the summary is sent instead" onClick={() => void continueWithSummary()}>Continue with a summary</button>
      {newConversation}
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
