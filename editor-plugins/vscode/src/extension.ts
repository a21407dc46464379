/** Starts the server and offers the commands. */

import * as vscode from 'vscode';
import type { LanguageClient } from 'vscode-languageclient/node';
import { createClient, type Listener } from './client';
import { createEnvironment } from './environment';
import { showReport } from './report';
import { findProgram } from './server';
import { showMenu, StatusBar, type ServerStatus } from './status';
import { isWorthALine, summary, type TelemetryRecord } from './telemetry';

const SECTION = 'specComplete';
const DEFAULT_MODEL = 'qwen2.5-coder-0.5b-q4';

/** The extension while it is active; owns the client, the status bar and the log. */
class Extension implements Listener, vscode.Disposable {
  private readonly log = vscode.window.createOutputChannel('Spec Complete', { log: true });
  private readonly bar = new StatusBar();
  private client: LanguageClient | undefined;
  private program: string | undefined;
  private paused = false;
  private told = '';

  constructor(private readonly storage: vscode.Uri) {}

  /** Starts the server, or offers to install it. */
  async start(): Promise<void> {
    this.program = await findProgram(this.storage);
    setContext('serverFound', this.program !== undefined);
    if (this.program === undefined) {
      this.bar.take({ kind: 'missing', message: 'Choose "Install Server" in the menu.' });
      await this.offerToInstall();
      return;
    }
    this.log.info(`server: ${this.program}`);
    this.bar.take({ kind: 'loading', message: 'Starting the server.' });
    this.client = createClient(this.program, this.log, this);
    try {
      await this.client.start();
    } catch (error) {
      this.fail(`The server did not start: ${String(error)}`);
    }
  }

  async stop(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    await client?.dispose().catch((error: unknown) => this.log.warn(String(error)));
    this.bar.take({ kind: 'stopped' });
  }

  async restart(): Promise<void> {
    await this.stop();
    this.told = '';
    await this.start();
  }

  dispose(): void {
    void this.stop();
    this.bar.dispose();
    this.log.dispose();
  }

  onStatus(status: ServerStatus): void {
    this.bar.take(status);
    this.log.info(`${status.kind}${status.uri ? ` ${status.uri}` : ''}: ${status.message ?? status.reason ?? ''}`);
    if (status.kind === 'ready') {
      this.told = '';
      setContext('ready', true);
    } else if (status.kind === 'error') {
      this.fail(status.message ?? 'Something is wrong.');
    }
  }

  onTelemetry(record: TelemetryRecord): void {
    if (isWorthALine(record)) {
      const line = summary(record);
      this.log.info(`${line} [${record.id}]`);
      if (record.characters > 0) {
        setContext('suggested', true);
        this.bar.answered(vscode.window.activeTextEditor?.document.uri.toString() ?? '', line);
      }
    }
    this.log.debug(JSON.stringify(record));
  }

  onGivenUp(message: string): void {
    this.fail(message);
  }

  isPaused(): boolean {
    return this.paused;
  }

  menu(): Thenable<void> {
    return showMenu(this.bar.current, this.paused, this.disabledLanguages());
  }

  togglePause(): void {
    this.paused = !this.paused;
    this.bar.pause(this.paused);
    if (this.paused) {
      void vscode.commands.executeCommand('editor.action.inlineSuggest.hide');
    }
  }

  async toggleLanguage(): Promise<void> {
    const language = vscode.window.activeTextEditor?.document.languageId;
    if (language === undefined) {
      return;
    }
    const off = this.disabledLanguages();
    const changed = off.includes(language) ? off.filter((other) => other !== language) : [...off, language];
    const configuration = vscode.workspace.getConfiguration(SECTION);
    await configuration.update('disabledLanguages', changed, vscode.ConfigurationTarget.Global);
  }

  openLog(): void {
    this.log.show();
  }

  async report(): Promise<void> {
    await this.withProgram(showReport);
  }

  async install(): Promise<void> {
    if (await createEnvironment(this.storage, this.log)) {
      await this.restart();
    }
  }

  /** In a terminal, where the download's progress can be seen and stopped. */
  async pullModel(): Promise<void> {
    await this.withProgram(async (program) => {
      const model = vscode.workspace.getConfiguration(SECTION).get<string | null>('model') ?? DEFAULT_MODEL;
      if ((await runInTerminal('Download model', program, ['model', 'pull', model])) === 0) {
        await this.restart();
      }
    });
  }

  async doctor(): Promise<void> {
    await this.withProgram(async (program) => {
      await runInTerminal('Check installation', program, ['doctor']);
    });
  }

  private disabledLanguages(): readonly string[] {
    return vscode.workspace.getConfiguration(SECTION).get<string[]>('disabledLanguages', []);
  }

  private async withProgram(use: (program: string) => void | Promise<void>): Promise<void> {
    if (this.program === undefined) {
      await this.offerToInstall();
      return;
    }
    try {
      await use(this.program);
    } catch (error) {
      this.log.error(String(error));
      void vscode.window.showErrorMessage(`Spec Complete: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  private async offerToInstall(): Promise<void> {
    const words = 'Spec Complete needs its server, a Python program, which was not found.';
    const chosen = await vscode.window.showWarningMessage(words, 'Create Environment', 'Choose Program…');
    if (chosen === 'Create Environment') {
      await this.install();
    } else if (chosen === 'Choose Program…') {
      await vscode.commands.executeCommand('workbench.action.openSettings', 'specComplete.server.command');
    }
  }

  /** Tells a fault once, with what can be done; not again until something changed. */
  private fail(message: string): void {
    this.bar.take({ kind: 'error', message });
    if (this.told === message) {
      return;
    }
    this.told = message;
    this.log.error(message);
    const actions = ['Download Model', 'Check Installation', 'Open Log'] as const;
    void vscode.window.showErrorMessage(`Spec Complete: ${message}`, ...actions).then((chosen) => {
      if (chosen === 'Download Model') {
        return this.pullModel();
      }
      return chosen === 'Check Installation' ? this.doctor() : chosen && this.openLog();
    });
  }
}

function setContext(name: string, value: boolean): void {
  void vscode.commands.executeCommand('setContext', `${SECTION}.${name}`, value);
}

/** Runs a program in a terminal that stays open; its exit code. */
async function runInTerminal(name: string, program: string, args: string[]): Promise<number | undefined> {
  const execution = new vscode.ProcessExecution(program, args);
  const task = new vscode.Task({ type: SECTION }, vscode.TaskScope.Workspace, name, 'Spec Complete', execution);
  const running = await vscode.tasks.executeTask(task);
  return new Promise((resolve) => {
    const ended = vscode.tasks.onDidEndTaskProcess((event) => {
      if (event.execution === running) {
        ended.dispose();
        resolve(event.exitCode);
      }
    });
  });
}

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const extension = new Extension(context.globalStorageUri);
  const inEditor = (command: string) => () => vscode.commands.executeCommand(`editor.action.inlineSuggest.${command}`);
  const commands: Record<string, () => unknown> = {
    menu: () => extension.menu(),
    trigger: inEditor('trigger'),
    acceptSuggestion: inEditor('commit'),
    acceptNextWord: inEditor('acceptNextWord'),
    acceptNextLine: inEditor('acceptNextLine'),
    togglePause: () => extension.togglePause(),
    toggleLanguage: () => extension.toggleLanguage(),
    restart: () => extension.restart(),
    openLog: () => extension.openLog(),
    report: () => extension.report(),
    install: () => extension.install(),
    pullModel: () => extension.pullModel(),
    doctor: () => extension.doctor(),
    settings: () => vscode.commands.executeCommand('workbench.action.openSettings', `@ext:${context.extension.id}`),
  };
  for (const [name, run] of Object.entries(commands)) {
    context.subscriptions.push(vscode.commands.registerCommand(`${SECTION}.${name}`, run));
  }
  context.subscriptions.push(
    extension,
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration(`${SECTION}.server`)) {
        void extension.restart();
      }
    }),
  );
  // not awaited: a question to the user must not hold activation up
  void extension.start();
}
