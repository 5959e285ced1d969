"""nginx as the floor: a plain proxy that checks, counts and records nothing."""

from pathlib import Path

from benchmarks.installs import find_nginx, nginx_version
from benchmarks.machine import Machine
from benchmarks.running import Running, free_port, start_program, stopping_on_failure, wait_until_answering

CONFIGURATION = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/nginx-error.log warn;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/nginx-body;
    proxy_temp_path {folder}/nginx-proxy;
    fastcgi_temp_path {folder}/nginx-fastcgi;
    uwsgi_temp_path {folder}/nginx-uwsgi;
    scgi_temp_path {folder}/nginx-scgi;
    client_max_body_size 4m;
    client_body_buffer_size 512k;
    keepalive_requests 100000000;
    upstream engines {{
        {servers}
        keepalive 1024;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }}
    }}
}}
"""


class NginxTarget:
    kind = "nginx"
    title = "nginx"
    set_up = "plain proxy, no key check, no log: the floor"
    is_rust_peer = False
    is_slow = False

    def prepare(self) -> str:
        self.program = find_nginx()
        return nginx_version(self.program)

    def start(self, backend_ports: list[int], machine: Machine, folder: Path) -> Running:
        folder.mkdir(parents=True, exist_ok=True)
        port = free_port()
        servers = " ".join(f"server 127.0.0.1:{backend};" for backend in backend_ports)
        configuration = folder / "nginx.conf"
        configuration.write_text(CONFIGURATION.format(folder=folder, servers=servers, port=port))
        command = [self.program, "-c", str(configuration), "-p", str(folder)]
        running = start_program(
            self.kind, machine.pinned(machine.proxy_core, command), folder=folder, port=port, key="none", model="mock"
        )
        with stopping_on_failure(running):
            wait_until_answering(running)
        return running
