/** What a line does, by arithmetic. Rates are bits per second, as lines are sold. */
export interface LineOf {
  rateBits: number;
  rttSeconds: number;
  /** Part of the packets, 0 to 1. */
  loss: number;
}

/** Payload of a packet of 1500 bytes with TCP timestamps. */
const MSS = 1448;

/** Bytes that are on the way while the line is full. */
export const windowFor = (line: LineOf) => (line.rateBits / 8) * line.rttSeconds;

/** What a window of so many bytes reaches, bits per second. */
export const rateOfWindow = (bytes: number, rttSeconds: number) => (bytes * 8) / rttSeconds;

/** What one connection of CUBIC or Reno gets at this loss, by Mathis and others: about MSS / RTT × 1.22 / √loss. */
export function rateOfOneConnection(line: LineOf): number {
  if (line.loss <= 0) return line.rateBits;
  return Math.min(line.rateBits, ((MSS * 8) / line.rttSeconds) * (1.22 / Math.sqrt(line.loss)));
}

/** How long so much changed data takes, seconds: compressed to a part of it, on a line that is nearly full. */
export const secondsFor = (bytes: number, part: number, line: LineOf) => (bytes * part * 8) / (line.rateBits * 0.95);

/** What may change in a day for an objective to hold, bytes: what the line carries in the time, if updates follow each other. */
export const bytesPerDay = (part: number, line: LineOf) => ((line.rateBits * 0.95) / 8 / part) * 86_400;
