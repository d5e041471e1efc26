// Takes a photo with the camera: in the page where the browser allows it, otherwise, and on touch
// devices, with the device's camera app.

import { say } from "./viewer.js";

export const startCamera = (add, showError) => {
  const dialog = document.getElementById("camera");
  const view = document.getElementById("view");
  const shot = document.getElementById("shot");
  let isOpening = false;

  const stop = () => {
    for (const track of view.srcObject?.getTracks() ?? []) track.stop();
    view.srcObject = null;
  };

  const open = async () => {
    showError(null);
    const isTouch = matchMedia("(pointer: coarse)").matches;
    if (isTouch || !navigator.mediaDevices?.getUserMedia) return shot.click();
    if (isOpening) return; // A second click would open a second stream.
    isOpening = true;
    try {
      const wanted = { video: { width: { ideal: 1600 } }, audio: false };
      const stream = await navigator.mediaDevices.getUserMedia(wanted);
      view.srcObject = stream;
      dialog.showModal();
    } catch {
      showError(new Error(say("no camera is available to this page")));
    }
    isOpening = false;
  };

  document.getElementById("photograph").addEventListener("click", open);
  shot.addEventListener("change", () => {
    add([...shot.files]);
    shot.value = "";
  });
  document.getElementById("leave").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", stop);
  document.getElementById("release").addEventListener("click", () => {
    const canvas = document.createElement("canvas");
    canvas.width = view.videoWidth;
    canvas.height = view.videoHeight;
    canvas.getContext("2d").drawImage(view, 0, 0);
    canvas.toBlob(
      (blob) => {
        dialog.close();
        if (blob) add([new File([blob], "photo.jpg", { type: "image/jpeg" })]);
      },
      "image/jpeg",
      0.92,
    );
  });
};
