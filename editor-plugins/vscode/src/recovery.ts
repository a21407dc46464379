/** What happens when the server dies: it is started again, quietly, unless it dies again and again. */

import { CloseAction, ErrorAction, type ErrorHandler } from 'vscode-languageclient/node';

const MOST_RESTARTS = 5;
const WINDOW_MS = 3 * 60 * 1000;

/**
 * The client's own handler tells each message that could not be delivered in a pop-up, and after the fourth gives up.
 * A server that was killed is written to until its end is noticed, once per keystroke: that is no reason for either.
 */
export function createErrorHandler(giveUp: (message: string) => void): ErrorHandler {
  let ends: number[] = [];
  return {
    error: (error) => ({
      action: ErrorAction.Continue,
      message: `Could not be delivered to the server: ${error.message}`,
      handled: true,
    }),
    closed: () => {
      const now = Date.now();
      ends = [...ends.filter((end) => now - end < WINDOW_MS), now];
      if (ends.length <= MOST_RESTARTS) {
        return { action: CloseAction.Restart, message: 'The server ended; it is started again.', handled: true };
      }
      const message = `The server ended ${ends.length} times in three minutes and is not started again by itself.`;
      giveUp(`${message} The log may say why; "Restart Server" tries again.`);
      return { action: CloseAction.DoNotRestart, message, handled: true };
    },
  };
}
