package dev.blockd;
/** x */
@Backing(type="int")
enum Method { AUTO = 0 }
