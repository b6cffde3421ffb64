import type { Schemas } from '../api/client';

export interface Line {
  label: string;
  text: string;
}

/** Lines by which programs of the site's own machine open an export. */
export function here(site: Schemas['Site'], name: string): Line[] {
  const socket = site.nbd_socket;
  const uri = `nbd+unix:///${name}?socket=${socket}`;
  return [
    { label: 'Look at it (libnbd)', text: `nbdinfo '${uri}'` },
    { label: 'Copy an image in (libnbd)', text: `nbdcopy --flush disk.img '${uri}'` },
    { label: 'Copy an image in (qemu-img)', text: `qemu-img convert -n -p -O raw disk.qcow2 '${uri}'` },
    { label: 'Linux block device, as root (nbd-client)', text: `nbd-client -unix ${socket} -name ${name} -block-size 4096 -persist /dev/nbd0` },
    {
      label: 'Virtual machine (QEMU)',
      text: `-blockdev driver=nbd,node-name=disk,export=${name},discard=unmap,server.type=unix,server.path=${socket} -device virtio-blk-pci,drive=disk`,
    },
  ];
}

/** Lines by which a host on another machine opens it, with the files that it was given. */
export function network(address: string, name: string): Line[] {
  const at = address.lastIndexOf(':');
  const port = address.slice(at + 1);
  const bound = address.slice(0, at).replace(/^\[|\]$/g, '');
  const host = bound === '0.0.0.0' || bound === '::' ? window.location.hostname : bound;
  const files = '/etc/farside/HOST';
  return [
    { label: 'Look at it (libnbd)', text: `nbdinfo 'nbds://${host}:${port}/${name}?tls-certificates=${files}'` },
    {
      label: 'Linux block device, as root (nbd-client)',
      text:
        `nbd-client ${host} ${port} /dev/nbd0 -name ${name} -block-size 4096 -persist -certfile ${files}/client-cert.pem ` +
        `-keyfile ${files}/client-key.pem -cacertfile ${files}/ca-cert.pem -tlshostname ${host}`,
    },
    {
      label: 'Virtual machine (QEMU)',
      text:
        `-object tls-creds-x509,id=tls0,endpoint=client,dir=${files} -blockdev driver=nbd,node-name=disk,export=${name},discard=unmap,` +
        `tls-creds=tls0,server.type=inet,server.host=${host},server.port=${port} -device virtio-blk-pci,drive=disk`,
    },
  ];
}
