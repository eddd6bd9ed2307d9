"""A page in headless Chromium, driven over its debugging pipe: what it looks like, what its script answers to a pointer, a finger or a
key, and what it tries to load. Standard library only.

    with Browser() as browser:              Browser.missing: why there is none, else ""
        browser.open(path, width=1200, dark=True)
        browser.ask('document.title')       the value of an expression in the page
        browser.move(x, y)                  the mouse; touch(x, y) a finger, key('ArrowLeft') a key
        browser.picture('page.png')
        browser.complaints                  what the page tried and its policy refused, and errors of its script
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile


class Browser:
    program = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
    missing = '' if program else 'no chromium: what a browser makes of a page is not tested here'

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        ours, theirs = os.pipe(), os.pipe()
        sandbox = ['--no-sandbox'] if os.getuid() == 0 else []

        def pipes():  # Chromium reads commands from 3 and writes answers to 4
            command, answer = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(command, 3)
            os.dup2(answer, 4)
            os.set_inheritable(3, True)
            os.set_inheritable(4, True)
        self.process = subprocess.Popen(
            [self.program, '--headless', *sandbox, '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe', '--no-first-run',
             f'--user-data-dir={self.folder}/profile', 'about:blank'],
            close_fds=False, preexec_fn=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.rest, self.source, self.number = ours[1], b'', theirs[0], 0
        self.session, self.events, self.complaints = None, [], []
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(f'{domain}.enable')
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        while b'\0' not in self.rest:
            more = os.read(self.source, 1 << 20)
            if not more:
                raise RuntimeError('chromium has ended')
            self.rest += more
        text, self.rest = self.rest.split(b'\0', 1)
        found = json.loads(text)
        if found.get('method') == 'Log.entryAdded':
            self.complaints.append(found['params']['entry']['text'])
        if found.get('method') == 'Runtime.exceptionThrown':
            self.complaints.append(str(found['params']['exceptionDetails']))
        if found.get('method') == 'Network.requestWillBeSent' and not found['params']['request']['url'].startswith(('data:', 'file:')):
            self.complaints.append(found['params']['request']['url'])
        return found

    def call(self, method, **parameters):
        self.number += 1
        sent = {'id': self.number, 'method': method, 'params': parameters}
        if self.session:
            sent['sessionId'] = self.session
        text = json.dumps(sent).encode() + b'\0'
        while text:
            text = text[os.write(self.to, text):]
        while True:
            found = self.message()
            if found.get('id') == self.number:
                if 'error' in found:
                    raise RuntimeError(f'{method}: {found["error"]}')
                return found['result']
            self.events.append(found.get('method'))

    def open(self, path, width=1200, height=1000, dark=False, paper=False, script=True, scale=1):
        self.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=scale, mobile=width < 600)
        self.call('Emulation.setEmulatedMedia', media='print' if paper else 'screen',
                  features=[{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}])
        self.call('Emulation.setScriptExecutionDisabled', value=not script)
        self.call('Emulation.setTouchEmulationEnabled', enabled=width < 600)
        self.events, self.complaints = [], []
        self.call('Page.navigate', url='file://' + os.path.abspath(path).replace('%', '%25').replace('#', '%23').replace('?', '%3f'))
        while 'Page.loadEventFired' not in self.events:
            self.events.append(self.message().get('method'))

    def ask(self, expression):
        found = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
        if 'exceptionDetails' in found:
            raise RuntimeError(f'{expression}: {found["exceptionDetails"]}')
        return found['result'].get('value')

    def move(self, x, y):
        self.call('Input.dispatchMouseEvent', type='mouseMoved', x=x, y=y)

    def touch(self, x, y):
        self.call('Input.dispatchTouchEvent', type='touchStart', touchPoints=[{'x': x, 'y': y}])
        self.call('Input.dispatchTouchEvent', type='touchEnd', touchPoints=[])

    def key(self, name):
        for kind in ('keyDown', 'keyUp'):
            self.call('Input.dispatchKeyEvent', type=kind, key=name, code=name)

    def picture(self, path):
        with open(path, 'wb') as to:
            to.write(base64.b64decode(self.call('Page.captureScreenshot', format='png')['data']))
