/** The status bar item and its menu. */

import * as vscode from 'vscode';

export type Kind = 'stopped' | 'missing' | 'loading' | 'ready' | 'busy' | 'inactive' | 'paused' | 'error';

/** Parameters of `specComplete/status`. */
export interface ServerStatus {
  readonly kind: Kind;
  readonly message?: string;
  readonly reason?: string;
  readonly uri?: string;
  readonly progress?: number;
}

const LOOKS: Record<Kind, { icon: string; words: string; colour?: string }> = {
  stopped: { icon: '$(circle-outline)', words: 'The server is not running.' },
  missing: { icon: '$(warning)', words: 'The server is not installed.', colour: 'statusBarItem.warningBackground' },
  loading: { icon: '$(loading~spin)', words: 'Loading.' },
  ready: { icon: '$(zap)', words: 'Ready.' },
  busy: { icon: '$(sync~spin)', words: 'Working.' },
  inactive: { icon: '$(circle-slash)', words: 'No completions in this file.' },
  paused: { icon: '$(debug-pause)', words: 'Paused.' },
  error: { icon: '$(error)', words: 'Something is wrong.', colour: 'statusBarItem.errorBackground' },
};

/** What is shown: the state of the server, unless the file at hand has one of its own or the user paused. */
export class StatusBar implements vscode.Disposable {
  private readonly item: vscode.StatusBarItem;
  private readonly inactive = new Map<string, ServerStatus>();
  private readonly editorChanged: vscode.Disposable;
  private server: ServerStatus = { kind: 'stopped' };
  private paused = false;
  private latest = '';

  constructor() {
    this.item = vscode.window.createStatusBarItem('specComplete', vscode.StatusBarAlignment.Right, 100);
    this.item.name = 'Spec Complete';
    this.item.command = 'specComplete.menu';
    this.editorChanged = vscode.window.onDidChangeActiveTextEditor(() => this.draw());
    this.draw();
    this.item.show();
  }

  dispose(): void {
    this.editorChanged.dispose();
    this.item.dispose();
  }

  /** Takes over what the server says, about itself or about one document. */
  take(status: ServerStatus): void {
    if (status.uri === undefined) {
      this.server = status;
    } else if (status.kind === 'inactive') {
      this.inactive.set(status.uri, status);
    } else {
      this.inactive.delete(status.uri);
    }
    this.draw();
  }

  /** A document got a completion: it is active. */
  answered(uri: string, latency: string): void {
    this.inactive.delete(uri);
    this.latest = latency;
    this.draw();
  }

  pause(paused: boolean): void {
    this.paused = paused;
    this.draw();
  }

  /** The state at hand. */
  get current(): ServerStatus {
    if (this.paused) {
      return { kind: 'paused' };
    }
    const uri = vscode.window.activeTextEditor?.document.uri.toString();
    const inactive = uri === undefined ? undefined : this.inactive.get(uri);
    return this.server.kind === 'ready' && inactive ? inactive : this.server;
  }

  private draw(): void {
    const { kind, message, progress } = this.current;
    const look = LOOKS[kind];
    const part = kind === 'loading' && progress ? ` ${Math.round(progress * 100)} %` : '';
    this.item.text = `${look.icon} Spec${part}`;
    const words = [`**Spec Complete**: ${look.words}`, message ?? ''];
    if (this.latest) {
      words.push(`Last suggestion: ${this.latest}`);
    }
    this.item.tooltip = new vscode.MarkdownString(words.filter(Boolean).join('\n\n'));
    this.item.accessibilityInformation = { label: `Spec Complete: ${look.words} ${message ?? ''}` };
    this.item.backgroundColor = look.colour ? new vscode.ThemeColor(look.colour) : undefined;
  }
}

interface Entry extends vscode.QuickPickItem {
  readonly command?: string;
}

/** The menu behind the status bar item. */
export async function showMenu(status: ServerStatus, paused: boolean, disabledLanguages: readonly string[]): Promise<void> {
  const language = vscode.window.activeTextEditor?.document.languageId;
  const off = language !== undefined && disabledLanguages.includes(language);
  const separator: Entry = { label: '', kind: vscode.QuickPickItemKind.Separator };
  const entries: Entry[] = [
    paused
      ? { label: '$(play) Resume', command: 'specComplete.togglePause' }
      : { label: '$(debug-pause) Pause', command: 'specComplete.togglePause' },
    ...(language === undefined
      ? []
      : [
          {
            label: off ? `$(check) Enable for ${language}` : `$(circle-slash) Disable for ${language}`,
            command: 'specComplete.toggleLanguage',
          },
        ]),
    separator,
    { label: '$(graph) Latency Report', command: 'specComplete.report' },
    { label: '$(output) Open Log', command: 'specComplete.openLog' },
    { label: '$(checklist) Check Installation', command: 'specComplete.doctor' },
    separator,
    { label: '$(refresh) Restart Server', command: 'specComplete.restart' },
    { label: '$(gear) Settings', command: 'specComplete.settings' },
  ];
  if (status.kind === 'missing') {
    entries.unshift({ label: '$(cloud-download) Install Server', command: 'specComplete.install' }, separator);
  } else if (status.kind === 'error') {
    entries.unshift({ label: '$(cloud-download) Download Model', command: 'specComplete.pullModel' }, separator);
  }
  const title = `Spec Complete: ${status.message ?? LOOKS[status.kind].words}`;
  const chosen = await vscode.window.showQuickPick(entries, { title, placeHolder: 'What to do' });
  if (chosen?.command) {
    await vscode.commands.executeCommand(chosen.command);
  }
}
